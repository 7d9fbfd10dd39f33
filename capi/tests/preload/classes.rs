//! Other size classes (`NEAP_CLASSES`): programs run under random ones as under those that are
//! built in, and a file that is none changes nothing.

use crate::support::{Artifact, Built, compile, is_full, library, run, succeeds, text};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const LARGEST: usize = 32 << 10;

/// A file that goes when the test is done.
struct File(PathBuf);

impl File {
    fn new(text: &str) -> File {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("table-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, text).expect("cargo's scratch directory is writable");
        File(path)
    }

    fn of(sizes: &[usize]) -> File {
        let lines: Vec<String> = sizes.iter().map(usize::to_string).collect();
        File::new(&format!("neap classes 1\n{}\n", lines.join("\n")))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("cargo's target directory is UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // One that stays behind is in cargo's scratch directory.
        let _ = fs::remove_file(&self.0);
    }
}

/// A random table: few sizes or many, anywhere.
fn random_sizes(seed: u64) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    let count = 1 + below(80);
    let mut sizes: Vec<usize> = (1..count)
        .map(|_| {
            let bits = below(12);
            16 * (1 + below(1 << bits))
        })
        .filter(|&size| size < LARGEST)
        .collect();
    if seed.is_multiple_of(2) {
        sizes.push(8);
    }
    sizes.push(LARGEST);
    sizes.sort_unstable();
    sizes.dedup();
    sizes.drain(..sizes.len().saturating_sub(80));
    sizes
}

/// What malloc promises of requests up to 8 bytes under a table.
fn least_align(sizes: &[usize]) -> &'static str {
    if sizes[0] == 8 { "8" } else { "16" }
}

fn program(source: &str) -> Option<Built> {
    compile(source, Artifact::Program, &[library().as_os_str()])
}

#[test]
fn blocks_are_right_under_random_classes() {
    let Some(program) = program("programs/classes.c") else {
        return;
    };
    let seeds = if is_full() { 24 } else { 6 };
    for seed in 1..=seeds {
        let sizes = random_sizes(seed);
        let file = File::of(&sizes);
        let mode = match seed % 6 {
            0 => ("NEAP_CHECK", "1"),
            1 => ("NEAP_COUNT", "1"),
            2 => ("NEAP_SAMPLE", "64K"),
            _ => ("NEAP_DECAY", "0"),
        };
        let arguments = [seed.to_string(), least_align(&sizes).to_owned()];
        let arguments = arguments.each_ref().map(OsStr::new);
        let variables = [("NEAP_CLASSES", file.path()), mode];
        let output = run(&program, &arguments, &variables);
        succeeds(&output, &format!("{mode:?}, {sizes:?}"));
    }
    // The same program under the classes that are built in.
    let arguments = ["1", "16"].map(OsStr::new);
    succeeds(&run(&program, &arguments, &[]), "built in");
}

#[test]
fn other_programs_run_under_random_classes() {
    for (source, arguments) in [
        ("programs/torture/torture.c", vec!["--rounds", "1500"]),
        ("programs/sized.c", vec![]),
        ("programs/fork_threads.c", vec![]),
        ("programs/operators.cc", vec![]),
    ] {
        let Some(program) = program(source) else {
            continue;
        };
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        // Odd: callers of `operator new` in the tests look for 16.
        let seeds = if is_full() { &[21, 23, 25][..] } else { &[21] };
        for &seed in seeds {
            let sizes = random_sizes(seed);
            let file = File::of(&sizes);
            let output = run(&program, &arguments, &[("NEAP_CLASSES", file.path())]);
            succeeds(&output, &format!("{source}, {sizes:?}"));
        }
    }
}

/// The classes of the statistics at a program's end.
fn classes_seen(file: &str) -> (String, String) {
    let Some(program) = program("programs/classes.c") else {
        return (String::new(), String::new());
    };
    let report = File::new("");
    let variables = [
        ("NEAP_CLASSES", file),
        ("NEAP_STATS", "json"),
        ("NEAP_STATS_FILE", report.path()),
    ];
    let arguments = ["5", "8"].map(OsStr::new);
    let output = run(&program, &arguments, &variables);
    assert!(output.status.success(), "{}", text(&output.stderr));
    (
        fs::read_to_string(report.path()).expect("statistics were written"),
        text(&output.stderr),
    )
}

#[test]
fn blocks_have_the_sizes_of_the_file() {
    let file = File::of(&[8, 112, 1008, 8016, LARGEST]);
    let (report, said) = classes_seen(file.path());
    assert_eq!(said, "");
    for size in [8, 112, 1008, 8016, LARGEST] {
        assert!(
            report.contains(&format!("\"bytes\":{size},")),
            "{size}: {report}"
        );
    }
    assert!(!report.contains("\"bytes\":1024,"), "{report}");
}

#[test]
fn a_file_that_is_none_is_one_line_and_changes_nothing() {
    let many: Vec<usize> = (1..=81).map(|n| n * 16).collect();
    let long = format!("neap classes 1\n#{}\n32768\n", "x".repeat(20_000));
    for (file, why) in [
        (File::new(""), "its first line is not `neap classes 1`"),
        (
            File::new("neap classes 1\n16\nmany\n"),
            "line 3 is no number",
        ),
        (
            File::of(&[24, LARGEST]),
            "line 2 is neither 8 nor a multiple of 16 up to 32768",
        ),
        (
            File::of(&[64, 32, LARGEST]),
            "the size in line 3 is not above the one before",
        ),
        (File::of(&many), "it has more than 80 sizes"),
        (File::of(&[16, 4096]), "its last size is not 32768"),
        (File::new(&long), "it is longer than 16384 bytes"),
    ] {
        let (report, said) = classes_seen(file.path());
        let expected = format!("neap: NEAP_CLASSES={} is ignored: {why}\n", file.path());
        assert_eq!(said, expected);
        assert!(report.contains("\"bytes\":1024,"), "{report}");
    }
    for missing in ["/nonexistent/classes", "/"] {
        let (_, said) = classes_seen(missing);
        let expected = format!(
            "neap: NEAP_CLASSES={missing} is ignored: it is no regular file, or cannot be read\n"
        );
        assert_eq!(said, expected);
    }
}
