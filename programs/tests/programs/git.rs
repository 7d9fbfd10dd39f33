//! git: a history of 2,000 commits made by fast-import and a few made one by one, then collected,
//! cloned and checked.

use neap_programs::{Need, Outcome, Program, World};
use std::fmt::Write;
use std::fs::File;
use std::process::Command;
use std::time::Duration;

pub const GIT: Program = Program {
    name: "git",
    needs: &[Need {
        command: "git",
        package: "git",
    }],
    limit: Duration::from_secs(120),
    transcript,
};

const COMMITS: usize = 2_000;

fn transcript(world: &World) -> Outcome<String> {
    world.run("git", &["init", "--quiet", "--initial-branch=main", "repo"])?;
    world.write("history", history(world.size(20, 200)))?;
    let mut import = git(world, &["fast-import", "--quiet"]);
    import.stdin(File::open(world.path("history"))?);
    world.succeed(import)?;
    world.succeed(git(world, &["reset", "--quiet", "--hard"]))?;
    for n in 0..world.size(5, 100) {
        world.write("repo/by-hand.txt", format!("edited by hand, time {n}\n"))?;
        world.succeed(git(world, &["add", "."]))?;
        world.succeed(git(world, &["commit", "--quiet", "-m", "By hand"]))?;
    }
    world.succeed(git(world, &["gc", "--quiet"]))?;
    world.run("git", &["clone", "--quiet", "--no-local", "repo", "copy"])?;
    let mut answers = String::new();
    let questions: [&[&str]; 4] = [
        &["rev-parse", "HEAD"],
        &["fsck", "--full"],
        &["rev-list", "--objects", "HEAD"],
        &["log", "--stat"],
    ];
    for question in questions {
        let mut command = git(world, question);
        command.current_dir(world.path("copy"));
        writeln!(answers, "{question:?}\n{}", world.succeed(command)?)?;
    }
    Ok(answers)
}

fn git(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.command("git");
    command.args(arguments).current_dir(world.path("repo"));
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), "Nea")
            .env(format!("GIT_{role}_EMAIL"), "n@example");
        command.env(format!("GIT_{role}_DATE"), "1700000000 +0000");
    }
    command
}

/// A stream for fast-import: every commit rewrites a few of a hundred files.
fn history(lines_a_file: usize) -> String {
    let mut stream = String::new();
    for n in 0..COMMITS {
        let when = 1_600_000_000 + n;
        let _ = write!(
            stream,
            "commit refs/heads/main\ncommitter Nea <n@example> {when} +0000\n"
        );
        let message = format!("Commit {n}\n");
        let _ = write!(stream, "data {}\n{message}", message.len());
        for file in [n % 100, n * 7 % 100, n * 31 % 100] {
            let text = text(n, file, lines_a_file);
            let path = format!("src/{}/file{file}.txt", file % 10);
            let _ = write!(stream, "M 644 inline {path}\ndata {}\n{text}\n", text.len());
        }
        stream.push('\n');
    }
    stream
}

fn text(commit: usize, file: usize, lines: usize) -> String {
    let line = |n| {
        format!(
            "line {n} of {file}: {}\n",
            (n * 7919 + commit / 10 * (n % 13)) % 10_007
        )
    };
    (0..lines).map(line).collect()
}
