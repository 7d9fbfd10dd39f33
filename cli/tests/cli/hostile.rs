//! What other processes may put under the names of Neap's memory files: each case gives a clear
//! error, and neither a crash nor a hang.

use crate::fake::{Fake, figures, memory_file};
use crate::skips::needs_root;
use crate::stage::{clean, copy_program, is_root, neap, plain_room, room, said};
use neap_shared::sites;
use neap_shared::status_page;
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// The error of `neap stat`, on one line.
fn refusal(output: &Output) -> String {
    let said = said(output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(output.stdout.is_empty());
    said
}

#[test]
fn processes_that_are_not_under_neap_are_told() {
    let fake = Fake::holding(File::open("/dev/null").unwrap());
    let said = refusal(&fake.neap(&["stat"]));
    assert!(
        said.contains("does not run under Neap: start it with neap run"),
        "{said}"
    );
}

#[test]
fn processes_that_are_gone_are_told() {
    let mut fake = Fake::status_page();
    fake.kill();
    let said = refusal(&fake.neap(&["stat"]));
    assert!(said.contains("there is no process"), "{said}");
    for word in [
        "0",
        "-1",
        "2147483647",
        "no-such-program",
        "",
        "99999999999",
    ] {
        refusal(&neap().arg("stat").arg("--").arg(word).output().unwrap());
    }
}

#[test]
fn a_process_that_ends_without_being_waited_for_is_told() {
    let mut child = Command::new("true").spawn().unwrap();
    let status = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&status).unwrap().contains(") Z") {
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    let said = refusal(&neap().args(["stat", &pid]).output().unwrap());
    child.wait().unwrap();
    assert!(said.contains("has ended"), "{said}");
}

#[test]
fn other_peoples_processes_are_told() {
    if !is_root() {
        // Process 1 belongs to root.
        let said = refusal(&neap().args(["stat", "1"]).output().unwrap());
        assert!(said.contains("belongs to another user"), "{said}");
        return needs_root("half of it: only root is another user");
    }
    let fake = Fake::status_page();
    let room = plain_room();
    let readable = room.path().join("neap");
    copy_program(env!("CARGO_BIN_EXE_neap"), &readable);
    let mut command = clean(&readable);
    let output = command
        .arg("stat")
        .arg(fake.pid().to_string())
        .uid(65534)
        .output();
    let said = refusal(&output.unwrap());
    assert!(
        said.contains("belongs to another user (number 0)"),
        "{said}"
    );
}

#[test]
fn files_that_are_no_status_pages_are_told() {
    for (bytes, why) in [
        (0, "has 0 bytes"),
        (4096, "has 4096 bytes"),
        (1 << 40, "has 1099511627776 bytes"),
    ] {
        let said = refusal(&Fake::zeros(status_page::NAME, bytes).neap(&["stat"]));
        assert!(said.contains(why), "{said}");
    }
    let unsealed = Fake::holding(memory_file(status_page::NAME, status_page::BYTES));
    let said = refusal(&unsealed.neap(&["stat"]));
    assert!(said.contains("is not sealed"), "{said}");
    let zeros = Fake::zeros(status_page::NAME, status_page::BYTES);
    let said = refusal(&zeros.neap(&["stat"]));
    assert!(said.contains("its first word is another"), "{said}");
}

#[test]
fn a_fifo_of_that_name_is_no_status_page() {
    let room = room();
    let fifo = room.path().join("memfd:neap-status (deleted)");
    let path = std::ffi::CString::new(fifo.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the path ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let file = File::options().read(true).write(true).open(&fifo).unwrap();
    let said = refusal(&Fake::holding(file).neap(&["stat"]));
    assert!(said.contains("does not run under Neap"), "{said}");
}

#[test]
fn heads_that_are_wrong_are_told() {
    for (at, why) in [
        (8, "has layout 77"),
        (16, "makes no sense"),
        (24, "only that of process 77"),
    ] {
        let fake = Fake::status_page();
        fake.write(status_page::HEAD_AT + at, &77_u64.to_ne_bytes());
        let said = refusal(&fake.neap(&["stat"]));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn figures_that_are_being_written_for_ever_are_told() {
    let fake = Fake::status_page();
    fake.write(status_page::FIGURES_AT, &1_u64.to_ne_bytes());
    let said = refusal(&fake.answering(&["stat", "--timeout=60s"]));
    assert!(said.contains("its figures are never complete"), "{said}");
}

#[test]
fn a_process_that_ends_while_it_is_asked_is_told() {
    let mut fake = Fake::status_page();
    let neap = neap()
        .args(["stat", "--timeout=10m", &fake.pid().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while fake.control().ask == 0 {
        std::thread::yield_now();
    }
    fake.kill();
    let said = refusal(&neap.wait_with_output().unwrap());
    assert!(said.contains("has ended"), "{said}");
}

/// Words to try in place of every number.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        0..100_u64,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The whole output of `stat` on a status page with a valid head and arbitrary bytes behind it.
    #[test]
    fn any_status_page_is_shown_or_refused(
        words in proptest::collection::vec(word(), (status_page::SIZES_AT - status_page::CONTROL_AT) / 8),
        answers in any::<bool>(),
        form in prop_oneof![Just("--format=json"), Just("--format=prometheus"), Just("--timeout=20ms")],
    ) {
        let fake = Fake::with_figures(&figures());
        fake.write(status_page::CONTROL_AT, bytemuck::cast_slice(&words));
        if answers {
            fake.write(status_page::FIGURES_AT, &2_u64.to_ne_bytes());
        }
        for verb in ["stat", "purge"] {
            let form = if verb == "purge" { "--format=json" } else { form };
            let arguments = [verb, "--timeout=20ms", form];
            let arguments = if form.starts_with("--timeout") { &arguments[..2] } else { &arguments[..] };
            let output = if answers { fake.answering(arguments) } else { fake.neap(arguments) };
            let code = output.status.code();
            prop_assert!(matches!(code, Some(0 | 124 | 125)), "{:?}: {}", code, said(&output));
            prop_assert!(!said(&output).contains("panicked"));
        }
        let top = fake.neap(&["top", "--interval=20ms", "--times=2"]);
        prop_assert_eq!(top.status.code(), Some(0), "{}", said(&top));
    }

    /// A head of arbitrary bytes.
    #[test]
    fn any_head_is_refused(words in proptest::collection::vec(word(), 7), at in 0_usize..7) {
        let fake = Fake::status_page();
        fake.write(status_page::HEAD_AT + 8 * at, &words[at].to_ne_bytes());
        let code = fake.neap(&["stat", "--timeout=20ms"]).status.code();
        prop_assert!(matches!(code, Some(124 | 125)), "{:?}", code);
    }
}

#[test]
fn a_region_is_not_taken_for_a_status_page() {
    let fake = Fake::zeros(sites::NAME, sites::BYTES);
    let said = refusal(&fake.neap(&["stat"]));
    assert!(said.contains("does not run under Neap"), "{said}");
}
