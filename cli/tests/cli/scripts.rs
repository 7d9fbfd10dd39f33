//! Scripts are judged by their interpreters.

use crate::stage::{Stage, compile, neap, plain_room, printed, room, said, script};
use std::fs;
use std::path::Path;

fn refused(program: &Path) -> (Option<i32>, String) {
    let output = neap().args(["run", "--"]).arg(program).output().unwrap();
    assert_eq!(output.stdout, b"");
    (output.status.code(), said(&output))
}

#[test]
fn they_run_with_their_arguments() {
    let room = room();
    for line in [
        "#!/bin/sh",
        "#! /bin/sh -e",
        "#!/usr/bin/env sh",
        "#!/usr/bin/env -S sh -e",
        "# none",
    ] {
        let file = script(
            room.path().join("script"),
            &format!("{line}\necho \"$0|$*\"\n"),
        );
        let text = printed(neap().args(["run", "--"]).arg(&file).args(["a", "b c"]));
        assert_eq!(text, format!("{}|a b c\n", file.display()), "{line}");
    }
}

#[test]
fn they_run_under_the_library() {
    let room = room();
    for line in [
        "#!/bin/cat",
        "#!/usr/bin/env cat",
        "#!/usr/bin/env -S cat -u",
    ] {
        let file = script(room.path().join("script"), &format!("{line}\n"));
        let text = printed(neap().args(["run", "--"]).arg(&file).arg("/proc/self/maps"));
        assert!(text.contains("libneap_c.so"), "{line}: {text}");
    }
}

#[test]
fn env_is_passed_over_with_no_children() {
    let stage = Stage::new();
    for line in [
        "#!/bin/cat",
        "#!/usr/bin/env cat",
        "#!/usr/bin/env -S cat -u",
    ] {
        let file = script(stage.path().join("script"), &format!("{line}\n"));
        let mut command = stage.neap();
        let text = printed(
            command
                .args(["run", "--no-children"])
                .arg(&file)
                .arg("/proc/self/maps"),
        );
        assert!(text.contains("libneap.so"), "{line}: {text}");
        assert!(text.starts_with(line));
    }
    let opaque = script(stage.path().join("script"), "#!/usr/bin/env -S -i cat\n");
    let output = stage
        .neap()
        .args(["run", "--no-children"])
        .arg(&opaque)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert!(
        said(&output).contains("name the interpreter yourself"),
        "{}",
        said(&output)
    );
    assert!(printed(stage.neap().arg("run").arg(&opaque)).starts_with("#!"));
}

#[test]
fn a_missing_interpreter_is_named() {
    let room = room();
    let file = script(room.path().join("script"), "#!/no/such/interpreter\n");
    assert_eq!(refused(&file).0, Some(126));
    assert!(
        refused(&file)
            .1
            .contains("its interpreter /no/such/interpreter does not exist")
    );
    let file = script(room.path().join("script"), "#!/bin/sh\r\necho\r\n");
    assert!(
        refused(&file).1.contains(r#""/bin/sh\r" does not exist"#),
        "{}",
        refused(&file).1
    );
    let file = script(
        room.path().join("script"),
        "#!/usr/bin/env no-such-interpreter\n",
    );
    assert_eq!(refused(&file).0, Some(127));
}

#[test]
fn a_static_interpreter_is_refused_through_any_number_of_scripts() {
    let room = plain_room();
    let source = room.path().join("start.c");
    fs::write(&source, "void _start(void) { for (;;); }\n").unwrap();
    let program = room.path().join("static");
    compile(
        ["-static", "-nostdlib", source.to_str().unwrap(), "-o"],
        &program,
    );
    let inner = script(
        room.path().join("inner"),
        &format!("#!{}\n", program.display()),
    );
    let outer = script(
        room.path().join("outer"),
        &format!("#!{}\n", inner.display()),
    );
    let (code, line) = refused(&outer);
    assert_eq!(code, Some(126));
    assert!(
        line.contains(&format!("{}: statically linked", program.display())),
        "{line}"
    );
}

#[test]
fn a_circle_is_seen() {
    let room = plain_room();
    let file = room.path().join("script");
    let file = script(file.clone(), &format!("#!{}\n", file.display()));
    assert!(refused(&file).1.contains("without end"));
}
