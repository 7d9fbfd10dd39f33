//! The transcripts in `docs/cli.md` and `transcripts.md` agree with what the command prints.
//!
//! A block of the kind `console` has a command after `$`, its exit status after `?` if that is not
//! 0, and both its outputs. `[..]` stands for any text within a line, and a line `...` for any
//! lines. The commands run in the directory of this crate.

use crate::stage::neap;
use std::io::Read;
use std::process::Stdio;

const PAGES: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/transcripts.md"),
];

/// A command and what it prints.
struct Transcript<'a> {
    /// Its line on the page.
    number: usize,
    command: &'a str,
    /// `interrupted` for one that a signal ended.
    status: &'a str,
    output: Vec<&'a str>,
}

fn transcripts(page: &str) -> Vec<Transcript<'_>> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line != "```console" {
            continue;
        }
        let block: Vec<&str> = { &mut lines }
            .map(|(_, line)| line)
            .take_while(|line| *line != "```")
            .collect();
        let command = block[0].strip_prefix("$ ");
        let command = command.unwrap_or_else(|| panic!("line {number}: no command"));
        let status = block.get(1).and_then(|line| line.strip_prefix("? "));
        found.push(Transcript {
            number: number + 1,
            command,
            status: status.unwrap_or("0"),
            output: block[1 + usize::from(status.is_some())..].to_vec(),
        });
    }
    found
}

/// The words of a command line with single quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// The status and the output, both streams in the order of their lines.
fn run(command: &str) -> (String, String) {
    let words = words(command);
    assert_eq!(words[0], "neap", "{command}");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = neap();
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stderr(writer.try_clone().unwrap())
        .stdout(writer);
    let mut child = command.spawn().unwrap();
    // It holds the other ends of the pipe.
    drop(command);
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    let status = child.wait().unwrap().code();
    let status = status.map_or("interrupted".to_owned(), |code| code.to_string());
    (status, output)
}

/// Whether lines agree with a pattern of lines.
fn agree(pattern: &[&str], lines: &[&str]) -> bool {
    match pattern {
        [] => lines.is_empty(),
        ["...", rest @ ..] => (0..=lines.len()).any(|skipped| agree(rest, &lines[skipped..])),
        [first, rest @ ..] => match lines {
            [line, others @ ..] => is_like(first, line) && agree(rest, others),
            [] => false,
        },
    }
}

/// Whether a line agrees with a pattern.
fn is_like(pattern: &str, line: &str) -> bool {
    let Some((start, rest)) = pattern.split_once("[..]") else {
        return pattern == line;
    };
    let Some(left) = line.strip_prefix(start) else {
        return false;
    };
    let mut ends = left.char_indices().map(|(at, _)| at).chain([left.len()]);
    ends.any(|at| is_like(rest, &left[at..]))
}

/// Lines without the empty ones at the end.
fn trimmed(mut lines: Vec<&str>) -> Vec<&str> {
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    lines
}

#[test]
fn the_pages_show_true_transcripts() {
    for page in PAGES {
        shows_true_transcripts(page);
    }
}

fn shows_true_transcripts(page: &str) {
    let text = std::fs::read_to_string(page).unwrap();
    let transcripts = transcripts(&text);
    assert!(transcripts.len() > 5, "{page}: {}", transcripts.len());
    for transcript in transcripts {
        let (status, output) = run(transcript.command);
        let is_true = status == transcript.status
            && agree(
                &trimmed(transcript.output),
                &trimmed(output.lines().collect()),
            );
        assert!(
            is_true,
            "{page}, line {}: $ {}\n? {status}\n{output}",
            transcript.number, transcript.command
        );
    }
}

#[test]
fn patterns_stand_for_text_and_lines() {
    assert!(agree(
        &["a", "...", "b[..]d", "..."],
        &["a", "x", "y", "bcd"]
    ));
    assert!(agree(&["...", "[..]b[..]"], &["b", "abc"]));
    assert!(!agree(&["a", "..."], &["b"]));
    assert!(!agree(&["a[..]c"], &["abd"]));
    assert!(!agree(&["a"], &["a", "b"]));
    assert_eq!(
        words("neap run -- sh -c 'exit 3'"),
        ["neap", "run", "--", "sh", "-c", "exit 3"]
    );
}
