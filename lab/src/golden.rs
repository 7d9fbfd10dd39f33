//! `neap-lab golden`: compares the instructions of each entry point of the shipped library with a
//! file. A change to the fast path deliberately changes that file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::peers::locate::{self, Places, Ready};
use crate::run;
use crate::work::count::{self, Counted};

/// The exit code if instructions cannot be counted here.
const CANNOT_COUNT: u8 = 3;

/// The peer for which only a pair of calls for 64 bytes is counted: Neap in a mode that chooses
/// blocks at random.
const HARDENED: &str = "neap-hardened";

/// How far counts may be from the golden ones. In hardened mode choices are random, and the size
/// classes that the process used before depend on the lengths of its paths. These also move the
/// blocks that are freed in random order. What a large block's free does now and then depends on
/// the time.
const SPREADS: [(&str, f64); 3] = [(HARDENED, 20.0), ("scattered-", 3.0), ("large-", 8.0)];

/// The arguments of `golden`.
#[derive(Args)]
pub struct Arguments {
    /// Compare with the file; exit 1 if a count differs
    #[arg(long, conflicts_with = "bless", required_unless_present = "bless")]
    check: bool,
    /// Rewrite the file
    #[arg(long)]
    bless: bool,
    /// The library (default: target/dist/libneap.so beside this program's target folder)
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
    /// The golden file (default: lab/golden/MACHINE.txt)
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

/// Counts, then compares or writes.
///
/// # Errors
/// If the library or the file does not exist, a count fails, or this is a debug build.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(reason) = run::no_instructions() {
        eprintln!("neap-lab: the golden counts cannot be taken: {reason}");
        return Ok(ExitCode::from(CANNOT_COUNT));
    }
    ensure!(
        !cfg!(debug_assertions),
        "a debug build of neap-lab counts other loops: build with --release"
    );
    let counted = golden_text(arguments)?;
    let file = arguments.file.clone().unwrap_or_else(default_file);
    if arguments.bless {
        fs::write(&file, &counted).with_context(|| format!("cannot write {file:?}"))?;
        print!("{counted}");
        return Ok(ExitCode::SUCCESS);
    }
    let golden = fs::read_to_string(&file)
        .with_context(|| format!("no golden file {file:?} (--bless writes it)"))?;
    Ok(check(&golden, &counted))
}

fn default_file() -> PathBuf {
    let name = format!("golden/{}.txt", std::env::consts::ARCH);
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The shipped library with the settings of the peer `name`. Counts of a build without link-time
/// optimisation would be meaningless.
fn shipped(name: &str, arguments: &Arguments) -> anyhow::Result<Ready> {
    let places = Places::new(arguments.neap.clone())?;
    let ready = locate::locate_name(name, &places)?;
    let is_shipped =
        arguments.neap.is_some() || ready.library.parent().is_some_and(|p| p.ends_with("dist"));
    ensure!(
        is_shipped,
        "no target/dist/libneap.so (ci/dist.sh builds it; --neap names another)"
    );
    Ok(ready)
}

/// One line per count, to a tenth of an instruction: one-time costs of a process are smaller.
fn golden_text(arguments: &Arguments) -> anyhow::Result<String> {
    let library = &shipped("neap", arguments)?;
    // A function that does nothing is one instruction long, its return.
    let around = run::instructions(&count::NOTHING, library)? - 1.0;
    let mut text = String::from(
        "# by `neap-lab golden --bless`\n# instructions of one call, the return included\n",
    );
    for counted in count::ENTRIES {
        text.push_str(&line(
            counted,
            run::instructions(counted, library)? - around,
        ));
    }
    text.push_str("# instructions a malloc and free, loop included\n");
    for counted in count::PAIRS {
        text.push_str(&line(counted, run::instructions(counted, library)?));
    }
    text.push_str("# a malloc and free of a large block, loop included, give or take 8\n");
    text.push_str(&rounded(count::LARGE, library)?);
    text.push_str("# a free in random order of 50,000 blocks, loop included, give or take 3\n");
    text.push_str(&rounded(count::SCATTERED, library)?);
    text.push_str(
        "# a malloc and free of 64 bytes in hardened mode, loop included, give or take 20\n",
    );
    let count = run::instructions(&count::HARDENED, &shipped(HARDENED, arguments)?)?;
    text.push_str(&format!("{HARDENED:<20}{count:>6.0}\n"));
    Ok(text)
}

/// A line for each of these, to a whole instruction.
fn rounded(all: &[Counted], library: &Ready) -> anyhow::Result<String> {
    all.iter()
        .map(|counted| {
            let count = run::instructions(counted, library)?;
            Ok(format!("{:<20}{count:>6.0}\n", counted.name))
        })
        .collect()
}

fn line(counted: &Counted, count: f64) -> String {
    format!("{:<12}{count:>8.1}\n", counted.name)
}

/// Prints the lines that differ.
fn check(golden: &str, counted: &str) -> ExitCode {
    let differing = differences(golden, counted);
    for difference in &differing {
        println!("{difference}");
    }
    if differing.is_empty() {
        println!("the instruction counts are those of the golden file");
        ExitCode::SUCCESS
    } else {
        println!("bless the golden file if that is meant: neap-lab golden --bless");
        ExitCode::FAILURE
    }
}

/// Lines of one text that the other lacks: `-` golden, `+` counted.
fn differences(golden: &str, counted: &str) -> Vec<String> {
    let lost = golden
        .lines()
        .filter(|line| !counted.lines().any(|other| agree(line, other)));
    let new = counted
        .lines()
        .filter(|line| !golden.lines().any(|other| agree(line, other)));
    lost.map(|l| format!("- {l}"))
        .chain(new.map(|l| format!("+ {l}")))
        .collect()
}

/// Whether two lines are the same, or counts of the same name that are close to each other.
fn agree(line: &str, other: &str) -> bool {
    let parts = |line: &str| -> Option<(String, f64)> {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    match (parts(line), parts(other)) {
        (Some(one), Some(two)) if one.0 == two.0 => {
            let spread = SPREADS.iter().find(|(name, _)| one.0.starts_with(name));
            (one.1 - two.1).abs() <= spread.map_or(0.0, |(_, spread)| *spread)
        }
        _ => line == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_count_is_a_difference_in_both_directions() {
        let golden = "malloc-64      12.0\nfree-64         8.0\n";
        assert!(differences(golden, golden).is_empty());
        let counted = golden.replace("12.0", "13.0");
        assert_eq!(
            differences(golden, &counted),
            ["- malloc-64      12.0", "+ malloc-64      13.0"]
        );
        assert_eq!(differences(golden, "malloc-64      12.0\n").len(), 1);
    }

    #[test]
    fn some_counts_may_differ_a_little() {
        let golden = "neap-hardened          425\n";
        assert!(differences(golden, &golden.replace("425", "445")).is_empty());
        assert_eq!(differences(golden, &golden.replace("425", "446")).len(), 2);
        let scattered = "scattered-64            95\n";
        assert!(differences(scattered, &scattered.replace("95", "98")).is_empty());
        assert_eq!(
            differences(scattered, &scattered.replace("95", "99")).len(),
            2
        );
        assert_eq!(differences(golden, "").len(), 1);
    }
}
