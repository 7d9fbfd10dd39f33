//! The words of the command line: help, manual pages, and refused values.

use crate::stage::{neap, printed, room, said};
use std::fs;

#[test]
fn the_command_alone_explains_itself() {
    let text = printed(&mut neap());
    assert!(text.lines().count() <= 12, "{text}");
    for part in ["memory allocator", "neap run -- PROGRAM", "neap help"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn options_stand_in_groups_the_most_useful_first() {
    let text = printed(neap().args(["help", "run"]));
    assert_eq!(text, printed(neap().args(["run", "--help"])));
    let places = [
        "What to write:",
        "--stats[=<FILE>]",
        "--record[=<FILE>]",
        "How much memory to keep:",
        "--decay <TIME>",
        "--limit <SIZE>",
        "Checks:",
        "Tuning:",
        "Compatibility:",
        "--no-kernel-queries",
    ]
    .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")));
    assert!(places.is_sorted(), "{places:?}: {text}");
}

#[test]
fn manual_pages_are_written() {
    let room = room();
    printed(neap().args(["help", "--man"]).arg(room.path()));
    for (page, part) in [
        ("neap.1", "neap\\-run(1)"),
        ("neap-run.1", "limit\\-dirty"),
        ("neap-profile.1", "flamegraph"),
        ("neap-help.1", "man"),
    ] {
        let text = fs::read_to_string(room.path().join(page)).unwrap();
        assert!(text.contains(part), "{page}: {text}");
    }
    let output = neap().args(["help", "--man", "/no/such"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn arguments_that_are_not_unicode_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let wrong = std::ffi::OsStr::from_bytes(b"\xff");
    let output = neap().arg(wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}

#[test]
fn values_of_the_wrong_kind_are_refused_with_the_right_ones() {
    for (line, now) in [
        ("run --stats=json -- true", "use --stats --format json"),
        ("run --decay 500 true", "500ms or 500s"),
        ("stat 1 --timeout 2", "2ms or 2s"),
    ] {
        let output = neap().args(line.split(' ')).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(125), "{line}: {said}");
        assert!(said.contains(now), "{line}: {said}");
    }
}

#[test]
fn a_mistyped_option_is_not_advised_to_be_a_program() {
    let output = neap().args(["run", "--bogus", "ls"]).output().unwrap();
    let said = said(&output);
    assert!(said.contains("neap run -- PROGRAM --bogus"), "{said}");
    assert!(!said.contains("'-- --bogus'"), "{said}");
    let output = neap().args(["stat", "--bogus", "1"]).output().unwrap();
    assert!(!crate::stage::said(&output).contains("-- --bogus"));
}
