//! `compare` as a user runs it, on programs whose difference is known.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::stage::{figure, folder, neap, parsed, text};

const MIB: f64 = 1_048_576.0;

/// A program in C.
fn built(name: &str, source: &str) -> PathBuf {
    let folder = folder(name);
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    let head = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
                #include <sys/mman.h>\n#include <unistd.h>\n";
    fs::write(&file, format!("{head}{source}")).unwrap();
    let mut compiler = Command::new("cc");
    let status = compiler.arg("-o").args([&program, &file]).status().unwrap();
    assert!(status.success());
    program
}

fn compare(options: &[&str], program: &Path) -> Command {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_neap-lab"));
    lab.args(["compare", "--quiet", "--peers", "neap,glibc", "--neap"])
        .arg(neap());
    lab.args(options).arg("--").arg(program);
    lab
}

fn run(options: &[&str], program: &Path) -> Output {
    compare(options, program).output().unwrap()
}

#[test]
fn memory_that_only_neap_gives_back_is_a_gain() {
    // The last block keeps glibc's heap from shrinking.
    let program = built(
        "compare-gain",
        "static char *p[100000];\nint main(void) {\n\
        for (int i = 0; i < 100000; i++) memset(p[i] = malloc(1000), 1, 1000);\n\
        for (int i = 0; i < 99999; i++) free(p[i]);\n\
        puts(\"dropped\"); pause(); }\n",
    );
    let page = program.with_extension("html");
    let options = ["--rounds", "1", "--load", "true", "--rest", "4", "--html"];
    let output = run(
        &[&options[..], &[page.to_str().unwrap()]].concat(),
        &program,
    );
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}{}", text(&output.stderr));
    assert!(told.contains("After the load, Neap keeps ") && told.contains("MB instead of 10"));
    assert!(
        told.contains("Fewer than three rounds") && !told.contains("dropped"),
        "{told}"
    );
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("After the load, Neap keeps") && page.contains("<polyline"));
}

#[test]
fn memory_that_is_not_mallocs_is_no_gain() {
    let program = built(
        "compare-none",
        "int main(void) {\n\
        char *p = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);\n\
        memset(p, 1, 64 << 20); usleep(300000); }\n",
    );
    let json = parsed(&run(&["--rounds", "3", "--json"], &program));
    for peer in ["neap", "glibc"] {
        let peak = figure(&json, "program", peer, "peak").as_f64().unwrap();
        assert!((64.0 * MIB..80.0 * MIB).contains(&peak), "{peer}: {peak}");
    }
    let told = text(&run(&["--rounds", "1"], &program).stdout);
    assert!(told.contains("No gain in memory: "), "{told}");
    assert!(
        told.contains("% of the memory is not malloc's, most of that shared memory"),
        "{told}"
    );
}

#[test]
fn a_program_that_fails_under_one_allocator_is_told() {
    let program = built(
        "compare-fails",
        "int main(void) {\n\
        if (!getenv(\"LD_PRELOAD\")) return 4;\n\
        fputs(\"no room\\n\", stderr); return 3; }\n",
    );
    let output = run(&["--rounds", "1"], &program);
    let said = text(&output.stderr);
    let expected =
        "program under neap: ended with exit code 3, but with exit code 4 under glibc: no room";
    assert!(said.contains(expected), "{said}");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("No verdict"));
}

#[test]
fn a_load_that_fails_and_a_program_that_ends_under_it_are_told() {
    let program = built("compare-loads", "int main(void) { pause(); }\n");
    let said = text(&run(&["--load", "echo boom >&2; exit 7"], &program).stderr);
    assert!(
        said.contains("the load ended with exit code 7: boom"),
        "{said}"
    );
    let said = text(&run(&["--load", "true"], Path::new("/bin/true")).stderr);
    assert!(
        said.contains("the program ended early: exit code 0"),
        "{said}"
    );
}

#[test]
fn nothing_is_left_of_an_interrupted_comparison() {
    let script = folder("compare-interrupted");
    let (program, mark) = (script.join("program"), script.join("pid"));
    let lines = format!(
        "#!/bin/sh\nsleep 1000 & echo $! >'{0}.new'\nmv '{0}.new' '{0}'\nwait\n",
        mark.display()
    );
    fs::write(&program, lines).unwrap();
    Command::new("chmod")
        .arg("+x")
        .arg(&program)
        .status()
        .unwrap();
    let mut lab = compare(&[], &program).spawn().unwrap();
    let wait_for = |is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < until, "not within a minute");
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(&|| mark.exists());
    let pid = fs::read_to_string(&mark).unwrap();
    let sleeper = PathBuf::from(format!("/proc/{}", pid.trim()));
    assert!(sleeper.exists());
    let id = lab.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(lab.wait().unwrap().code(), Some(1));
    wait_for(&|| !sleeper.exists());
}
