//! `neap stat` and `neap purge`.

use crate::fake::{Fake, figures};
use crate::skips::needs_root;
use crate::stage::{clean, copy_program, is_root, neap, room, said};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread;
use std::time::Duration;

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn line<'a>(page: &'a str, name: &str) -> &'a str {
    let words = |line: &&str| line.split_whitespace().take(2).any(|word| word == name);
    page.lines().find(words).unwrap_or_else(|| panic!("{page}"))
}

#[test]
fn a_process_that_answers_shows_its_ledger() {
    let fake = Fake::with_figures(&figures());
    let output = fake.answering(&["stat", "--all", "--timeout=60s"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let page = printed(&output);
    assert!(
        page.starts_with(&format!("sleep ({})\n", fake.pid())),
        "{page}"
    );
    assert!(
        line(&page, "requested").contains("+ requested         10.0 MiB"),
        "{page}"
    );
    assert!(
        line(&page, "untouched").contains("- untouched          3.0 MiB"),
        "{page}"
    );
    assert!(line(&page, "resident").contains("the sum"), "{page}");
    assert!(line(&page, "difference").contains("+8.0 MiB"), "{page}");
    let class: Vec<&str> = line(&page, "48").split_whitespace().collect();
    assert_eq!(class[..5], ["48", "2", "50", "30", "20"]);
}

#[test]
fn the_json_form_has_the_same_figures() {
    let fake = Fake::with_figures(&figures());
    let output = fake.answering(&["stat", "--format=json", "--timeout=60s"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["pid"], fake.pid());
    assert_eq!(object["program"], "sleep");
    assert_eq!(object["state"], "fresh");
    assert_eq!(object["ledger"]["requested"], 10 << 20);
    assert_eq!(object["ledger"]["requested_by"], "guess");
    assert_eq!(object["figures"]["classes"][0]["live"], 50);
    assert!(object["kernel"]["process_resident"].as_u64().unwrap() > 0);
}

#[test]
fn the_metrics_have_the_same_figures() {
    let fake = Fake::with_figures(&figures());
    let output = fake.answering(&["stat", "--format=prometheus", "--timeout=60s"]);
    let page = printed(&output);
    assert_eq!(fake.metric(&page, "requested_bytes"), Some("10485760"));
    assert_eq!(fake.metric(&page, "minor_faults_total"), Some("1234"));
}

#[test]
fn a_process_that_sleeps_is_pending() {
    let fake = Fake::with_figures(&figures());
    for arguments in [&["stat", "--timeout=50ms"], &["purge", "--timeout=50ms"]] {
        let output = fake.neap(arguments);
        assert_eq!(output.status.code(), Some(124), "{}", said(&output));
        assert!(
            printed(&output).contains("pending: "),
            "{}",
            printed(&output)
        );
        let advice = "; --timeout 10s waits longer)\n";
        assert!(printed(&output).contains(advice), "{}", printed(&output));
        assert!(said(&output).is_empty());
    }
    let output = fake.neap(&["stat", "--format=json", "--timeout=50ms"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["state"], "pending");
}

#[test]
fn a_rust_program_that_sleeps_is_told_what_it_lacks() {
    let fake = Fake::status_page();
    fake.write(
        std::mem::offset_of!(neap_shared::status_page::Head, frontend),
        &2_u64.to_ne_bytes(),
    );
    // It asked for the thread, and its heap is small.
    let page = printed(&fake.neap(&["stat", "--timeout=50ms"]));
    assert!(page.contains("its heap is small"), "{page}");
    let thread = std::mem::offset_of!(neap_shared::status_page::Served, thread);
    let not_asked = neap_shared::status_page::ThreadState::NotAsked as u64;
    fake.write(
        neap_shared::status_page::SERVED_AT + thread,
        &not_asked.to_ne_bytes(),
    );
    for arguments in [&["stat", "--timeout=50ms"], &["purge", "--timeout=50ms"]] {
        let page = printed(&fake.neap(arguments));
        let why = "has no thread that answers unless it asks for one";
        let advice = "call neap::purge::enable_thread() in it, or set NEAP_PURGE_THREAD=always; ";
        assert!(page.contains(why) && page.contains(advice), "{page}");
        assert!(
            !page.contains("small") && !page.contains("--purge-thread always"),
            "{page}"
        );
    }
}

#[test]
fn python_is_told_where_its_small_objects_are() {
    for (setting, is_told) in [(None, true), (Some("malloc"), false)] {
        let fake = Fake::of_python(setting);
        let page = printed(&fake.answering(&["stat", "--timeout=60s"]));
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let hint = "CPython keeps objects of up to 512 bytes to itself";
        assert_eq!(words.contains(hint), is_told, "{page}");
        let profile = said(&fake.neap(&["profile", "--for=50ms"]));
        let hint = "neap: hint: CPython keeps objects";
        assert_eq!(profile.contains(hint), is_told, "{profile}");
        let quiet = said(&fake.neap(&["profile", "--for=50ms", "--quiet"]));
        assert!(!quiet.contains("hint"), "{quiet}");
    }
}

/// A few lines: what takes the memory, and the next command.
#[test]
fn without_an_option_a_verdict_comes_first() {
    let fake = Fake::with_figures(&figures());
    let page = printed(&fake.answering(&["stat", "--timeout=60s"]));
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        " in RAM, 8.0 MiB of it in the heap.",
        "Live blocks take 8.0 MiB. Of the other 64.0 KiB (0.8 % of the heap), the largest part is",
        &format!("neap profile {} shows which calls allocate", fake.pid()),
    ] {
        assert!(words.contains(part), "no {part:?} in {page}");
    }
    assert!(
        page.lines().all(|line| line.chars().count() <= 80),
        "{page}"
    );
    assert!(
        !page.contains("slabs") && page.lines().count() <= 16,
        "{page}"
    );
}

#[test]
fn without_a_process_all_are_listed() {
    let fake = Fake::status_page();
    let output = neap().arg("stat").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let (page, pid) = (printed(&output), fake.pid().to_string());
    let is_listed = |line: &str| line.split_whitespace().next() == Some(&pid);
    assert!(page.lines().any(is_listed), "{page}");
    let output = neap().args(["stat", "--format=json"]).output().unwrap();
    assert!(
        serde_json::from_slice::<Value>(&output.stdout)
            .unwrap()
            .is_array()
    );
    let refused = neap()
        .args(["stat", "--format=prometheus"])
        .output()
        .unwrap();
    assert!(said(&refused).contains("neap serve"), "{}", said(&refused));
}

#[test]
fn a_purge_says_how_much_went_back() {
    let fake = Fake::status_page();
    let page = printed(&fake.answering(&["purge", "--timeout=60s"]));
    let title = format!("sleep ({})", fake.pid());
    assert!(
        page.starts_with(&format!("{title} gave 5.0 MiB back, resident or not\n")),
        "{page}"
    );
    // The process sleeps.
    assert!(
        page.ends_with(" after: 0 B, of this 0 B in the heap\n"),
        "{page}"
    );
    let output = fake.answering(&["purge", "--format=json", "--timeout=60s"]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["purged_bytes"], 5 << 20);
    assert_eq!(object["state"], "done");
    assert_eq!(object["arenas_before"], object["arenas_after"]);
}

#[test]
fn a_purge_of_nothing_says_so() {
    let fake = Fake::status_page();
    let page = printed(&fake.answering_with(0, &["purge", "--timeout=60s"]));
    let first = format!("sleep ({}) had no free memory to give back\n", fake.pid());
    assert!(page.starts_with(&first), "{page}");
}

#[test]
fn root_looks_at_other_peoples_processes() {
    if !is_root() {
        other_users_are_not_ours();
        return needs_root("half of it: only root looks at processes of other users");
    }
    let fake = Fake::of_user(65534);
    for verb in ["stat", "purge"] {
        let output = fake.answering(&[verb, "--timeout=60s"]);
        assert_eq!(output.status.code(), Some(0), "{verb}: {}", said(&output));
        assert_eq!(said(&output), "", "{verb}");
    }
    let output = neap().args(["stat", "no-such-program"]).output().unwrap();
    let said = said(&output);
    assert!(
        said.contains("there is no process no-such-program; neap stat lists those under Neap\n"),
        "{said}"
    );
}

/// What users other than root are told about names of other users' processes.
fn other_users_are_not_ours() {
    let output = neap().args(["stat", "no-such-program"]).output().unwrap();
    assert!(said(&output).contains("no-such-program of this user"));
}

#[test]
fn names_that_several_processes_have_are_listed() {
    let (one, two) = (Fake::status_page(), Fake::status_page());
    let output = neap().args(["stat", "sleep"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = said(&output);
    assert!(
        said.contains("processes under Neap are called sleep"),
        "{said}"
    );
    // Other tests have such processes as well.
    assert!(
        said.contains("...")
            || [&one, &two]
                .iter()
                .all(|fake| said.contains(&fake.pid().to_string()))
    );
}

/// A sleeping process without a status page.
struct Unseen(Child);

impl Unseen {
    /// Of `program`, which `starter` executes.
    fn start(mut starter: Command, program: &Path) -> Unseen {
        starter.arg("60").env("NEAP_STATUS_PAGE", "0");
        let unseen = Unseen(starter.spawn().unwrap());
        let link = format!("/proc/{}/exe", unseen.0.id());
        while fs::read_link(&link).unwrap() != program {
            thread::sleep(Duration::from_millis(5));
        }
        unseen
    }

    fn under_neap(program: &Path) -> Unseen {
        let mut starter = neap();
        starter.args(["run", "--"]).arg(program);
        let unseen = Unseen::start(starter, program);
        let maps = format!("/proc/{}/maps", unseen.0.id());
        while !fs::read_to_string(&maps).unwrap().contains("/libneap") {
            thread::sleep(Duration::from_millis(5));
        }
        unseen
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn several_processes_without_status_pages_are_not_said_to_run_without_neap() {
    let room = room();
    let program = room.path().canonicalize().unwrap().join("unseen");
    copy_program("/bin/sleep", &program);
    let refused = || {
        ["stat", "guard"].map(|verb| {
            let output = neap().args([verb, "unseen"]).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{}", said(&output));
            said(&output)
        })
    };
    let _others = [0; 2].map(|_| Unseen::start(clean(&program), &program));
    for said in refused() {
        let why = "none of the 2 processes unseen runs under Neap: start one with neap run";
        assert!(said.contains(why), "{said}");
    }
    let first = Unseen::under_neap(&program);
    let why = format!(
        "unseen ({}) runs under Neap without a status page: ",
        first.0.id()
    );
    for said in refused() {
        assert!(said.contains(&format!(" {why}")), "{said}");
    }
    let second = Unseen::under_neap(&program);
    let lowest = first.0.id().min(second.0.id());
    for said in refused() {
        let why = format!(" unseen ({lowest}) runs under Neap without a status page: ");
        assert!(said.contains(&why), "{said}");
    }
}
