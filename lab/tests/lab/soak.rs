//! `soak` as a user runs it: two of its members for a short time, and members with faults.

use crate::stage::{figure, folder, json, lab, neap, text};

use std::path::Path;

#[test]
fn members_run_together_and_their_answers_are_counted() {
    let library = neap();
    let library = library.to_str().expect("a path of text");
    let only = ["--only", "threads,pressed", "--neap", library];
    let output = lab(&[&["soak", "--install"], &only[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = json(&[&["soak", "--quick", "--json"], &only[..]].concat());
    let number = |member, name| figure(&told, member, "neap", name).as_f64().unwrap();
    for member in ["threads", "pressed"] {
        assert!(number(member, "answers") > 1_000.0);
    }
    let sum = number("threads", "answers") + number("pressed", "answers");
    assert_eq!(number("all", "answers"), sum);
    // 48 MB is the limit of that member's heap.
    let most = number("pressed", "most resident");
    assert!((10e6..60e6).contains(&most), "{most}");
}

/// A member whose program is a shell's lines, in a folder of its own.
fn member(folder: &Path, name: &str, lines: &str) {
    let place = folder.join(name);
    std::fs::create_dir(&place).expect("the folder is writable");
    let words = format!(
        "title = \"{name}\"\ncomplaint = []\nwhat = \"\"\nkind = \"like\"\n\
         subject = [\"sh\", \"-c\", \"{lines}\"]\n"
    );
    std::fs::write(place.join("case.toml"), words).expect("the folder is writable");
}

#[test]
fn a_wrong_answer_and_an_early_end_fail() {
    let library = neap();
    let library = library.to_str().expect("a path of text");
    let folder = folder("soak-faults");
    member(
        &folder,
        "wrong",
        "echo work; echo wrong: two >&2; sleep 1; exit 1",
    );
    member(
        &folder,
        "steady",
        "echo work; while sleep 0.1; do echo answers $((n += 1)); done",
    );
    let place = folder.to_str().expect("a path of text");
    let output = lab(&["soak", "--quick", "--neap", library, "--members", place]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("wrong after") && said.contains("wrong: two"),
        "{said}"
    );
}
