//! `neap top`, in a pipe and in a terminal.

use crate::fake::{Fake, figures};
use crate::stage::{neap, said};
use crate::terminal::{ENTERED, LEFT, PROMPT, Terminal, fresh_mode, top};
use neap_shared::stats::Snapshot;
use neap_shared::status_page;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Writes figures in place of the process until it goes out of scope.
struct Writer<'a> {
    fake: &'a Fake,
    moment: AtomicU64,
    over: AtomicBool,
}

impl<'a> Writer<'a> {
    fn new(fake: &'a Fake) -> Self {
        Writer {
            fake,
            moment: AtomicU64::new(1000),
            over: AtomicBool::new(false),
        }
    }

    /// Calls `then` while the figures change by 100 faults per second.
    fn during<T>(&self, then: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                while !self.over.load(Ordering::Relaxed) {
                    self.step();
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let end = End(&self.over);
            let result = then();
            drop(end);
            result
        })
    }

    /// What `neap` writes when every look finds new figures. On a busy machine the writer may be
    /// late for one of them, so there are several tries.
    fn looked_at(&self, arguments: &[&str]) -> Output {
        self.during(|| {
            let mut outputs = (0..50).map(|_| self.fake.neap(arguments));
            let is_late = |output: &Output| said_anywhere(output, "pending");
            let first = outputs.next().expect("a try");
            match is_late(&first) {
                true => outputs.find(|output| !is_late(output)).unwrap_or(first),
                false => first,
            }
        })
    }

    fn step(&self) {
        let at_ms = self.moment.fetch_add(10, Ordering::Relaxed);
        let figures = Snapshot {
            at_ms,
            minor_faults: at_ms / 10,
            ..figures()
        };
        self.fake
            .write(status_page::FIGURES_AT, &1_u64.to_ne_bytes());
        self.fake
            .write(status_page::FIGURES_AT + 8, bytemuck::bytes_of(&figures));
        self.fake
            .write(status_page::FIGURES_AT, &2_u64.to_ne_bytes());
        self.fake.serve();
    }
}

fn said_anywhere(output: &Output, word: &str) -> bool {
    String::from_utf8_lossy(&output.stdout).contains(word)
}

/// Ends the writer even if a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_pipe_gets_lines() {
    let fake = Fake::status_page();
    let writer = Writer::new(&fake);
    let output = writer.looked_at(&["top", "--interval=100ms", "--times=3"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b'), "{text:?}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(
        lines[0].contains("resident") && lines[0].contains("faults/s"),
        "{text}"
    );
    let second: Vec<&str> = lines[2].split_whitespace().collect();
    assert!(second.contains(&"100"), "{text}");
    assert!(!text.contains("pending"), "{text}");
    assert_eq!(fake.control().interval_ms, 100);
}

#[test]
fn lines_can_be_json() {
    let fake = Fake::status_page();
    let writer = Writer::new(&fake);
    let output = writer.looked_at(&["top", "--interval=50ms", "--times=2", "--format=json"]);
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["rates"]["minor_faults"], 100.0);
    assert_eq!(lines[1]["ledger"]["requested"], 10 << 20);
}

#[test]
fn a_process_that_sleeps_is_pending_on_every_line() {
    let fake = Fake::status_page();
    let output = fake.neap(&["top", "--interval=50ms", "--times=2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let pending = text.lines().filter(|line| line.ends_with("pending"));
    assert_eq!(pending.count(), 2, "{text}");
}

#[test]
fn the_list_has_every_process() {
    let (one, two) = (Fake::status_page(), Fake::status_page());
    let output = neap().args(["top", "--times=1"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for fake in [&one, &two] {
        let pid = fake.pid().to_string();
        let line =
            |line: &str| line.split_whitespace().next() == Some(&pid) && line.ends_with("sleep");
        assert!(text.lines().any(line), "{text}");
    }
    let output = neap()
        .args(["top", "--times=1", "--format=json"])
        .output()
        .unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let has = |fake: &Fake| {
        list.as_array()
            .unwrap()
            .iter()
            .any(|entry| entry["pid"] == fake.pid())
    };
    assert!(has(&one) && has(&two), "{list}");
}

#[test]
fn the_end_of_the_process_is_told() {
    let mut fake = Fake::status_page();
    let child = neap()
        .args(["top", "--interval=50ms", &fake.pid().to_string()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while fake.control().lease_until_ms == 0 {
        thread::yield_now();
    }
    fake.kill();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let end = format!("neap: sleep ({}) has ended\n", fake.pid());
    assert_eq!(said(&output), end);
}

#[test]
fn a_terminal_shows_the_ledger_and_obeys_keys() {
    let fake = Fake::status_page();
    let before = fresh_mode();
    Writer::new(&fake).during(|| {
        let mut terminal = Terminal::start(top(&fake));
        terminal.wait_for("requested");
        terminal.wait_for("size classes, by bytes live");
        terminal.press("s");
        terminal.wait_for("size classes, by bytes free");
        terminal.press("p");
        terminal.wait_for("gave 5.0 MiB back");
        terminal.press("\x1b[B\x1b[A");
        terminal.press("q");
        let (status, _) = terminal.end(&before);
        assert_eq!(status.code(), Some(0));
    });
    assert_eq!(fake.control().purge, 1);
}

#[test]
fn from_the_list_one_looks_into_a_process_and_back() {
    let _fake = Fake::status_page();
    let before = fresh_mode();
    let mut command = neap();
    command.args(["top", "--interval=50ms"]);
    let mut terminal = Terminal::start(command);
    terminal.wait_for("under Neap");
    assert!(!terminal.seen.contains("no process"), "{}", terminal.seen);
    terminal.press("s");
    terminal.wait_for("by free");
    terminal.press("\x1b[B\r");
    terminal.wait_for("Esc list");
    terminal.press("\x7f");
    terminal.wait_for("Enter look into");
    terminal.press("q");
    assert_eq!(terminal.end(&before).0.code(), Some(0));
}

#[test]
fn signals_give_the_terminal_back() {
    let before = fresh_mode();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT] {
        let fake = Fake::status_page();
        let mut terminal = Terminal::start(top(&fake));
        terminal.wait_for("sleep");
        terminal.signal(signal);
        let (status, _) = terminal.end(&before);
        assert_eq!(status.signal(), Some(signal));
    }
}

#[test]
fn a_terminal_that_takes_no_output_is_given_back() {
    let fake = Fake::status_page();
    let before = fresh_mode();
    Writer::new(&fake).during(|| {
        let mut terminal = Terminal::start(top(&fake));
        terminal.wait_for("size classes");
        terminal.fill();
        // It renews its lease at every tick until it is blocked.
        let mut leased = 0;
        while leased != fake.control().lease_until_ms {
            leased = fake.control().lease_until_ms;
            thread::sleep(Duration::from_secs(2));
        }
        terminal.signal(libc::SIGTERM);
        assert_eq!(terminal.wait_for_end().code(), Some(128 + libc::SIGTERM));
        assert!(terminal.mode() == before, "the terminal was not given back");
        terminal.wait_for_bytes(LEFT);
    });
}

#[test]
fn a_shell_stops_it_and_continues_it() {
    let fake = Fake::status_page();
    Writer::new(&fake).during(|| {
        let mut shell = Terminal::shell();
        shell.wait_for_bytes(PROMPT);
        let neap = env!("CARGO_BIN_EXE_neap");
        shell.press(&format!("'{neap}' top --interval=50ms {}\r", fake.pid()));
        shell.wait_for("size classes");
        shell.seen.clear();
        shell.press("\x1a");
        shell.wait_for_bytes(PROMPT);
        assert!(
            shell.seen.find(LEFT) < shell.seen.find(PROMPT),
            "{}",
            shell.seen
        );
        shell.resize(24, 80);
        shell.seen.clear();
        shell.press("fg\r");
        shell.wait_for_bytes(ENTERED);
        shell.wait_for_bytes("\x1b[24;1H\x1b[K");
        assert!(!shell.seen.contains("\x1b[25;1H"), "{}", shell.seen);
        shell.seen.clear();
        // Obeyed without Enter.
        shell.press("q");
        shell.wait_for_bytes(PROMPT);
        assert!(shell.seen.contains(LEFT), "{}", shell.seen);
    });
}

#[test]
fn a_stopped_one_can_be_ended() {
    let fake = Fake::status_page();
    let mut shell = Terminal::shell();
    shell.wait_for_bytes(PROMPT);
    let neap = env!("CARGO_BIN_EXE_neap");
    shell.press(&format!("'{neap}' top {}\r", fake.pid()));
    shell.wait_for_bytes(ENTERED);
    shell.press("\x1a");
    shell.wait_for_bytes(LEFT);
    // In the background, it must leave the terminal's mode alone: the kernel would stop it again.
    shell.press("kill %1; kill -CONT %1; wait %1; echo gone-$((1 + 1))\r");
    shell.wait_for_bytes("gone-2");
}

#[test]
fn a_stop_without_notice_leaves_nothing_behind() {
    let fake = Fake::status_page();
    let before = fresh_mode();
    let mut terminal = Terminal::start(top(&fake));
    terminal.wait_for("sleep");
    let own = terminal.mode();
    terminal.signal(libc::SIGSTOP);
    terminal.wait_for_stop();
    // What a shell does.
    terminal.set_mode(&before);
    terminal.seen.clear();
    terminal.signal(libc::SIGCONT);
    terminal.wait_for_bytes(ENTERED);
    terminal.wait_for("sleep");
    assert!(terminal.mode() == own, "the keys need Enter");
    terminal.press("q");
    assert_eq!(terminal.end(&before).0.code(), Some(0));
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let fake = Fake::status_page();
    let mut terminal = Terminal::start(top(&fake));
    terminal.wait_for("sleep");
    assert_eq!(terminal.hang_up().signal(), Some(libc::SIGHUP));
}

#[test]
fn a_question_mark_explains_the_page() {
    let fake = Fake::status_page();
    let before = fresh_mode();
    Writer::new(&fake).during(|| {
        let mut terminal = Terminal::start(top(&fake));
        terminal.wait_for("? help");
        terminal.press("?");
        terminal.wait_for("free blocks in slabs");
        terminal.press("\x7f");
        terminal.wait_for("size classes");
        terminal.press("q");
        assert_eq!(terminal.end(&before).0.code(), Some(0));
    });
}

#[test]
fn processes_that_cannot_be_seen_are_an_error() {
    let Some(mut command) = crate::stage::with_own_mounts() else {
        return crate::skips::needs_root("no mount namespace can be made here");
    };
    let script = "mount -t tmpfs none /proc && exec \"$0\" top --times=1";
    let output = command
        .args(["sh", "-c", script, env!("CARGO_BIN_EXE_neap")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(said(&output).contains("mount -t proc"), "{}", said(&output));
}

#[test]
fn the_end_of_the_process_leads_back_to_the_list() {
    let mut fake = Fake::status_page();
    let before = fresh_mode();
    let mut terminal = Terminal::start(top(&fake));
    terminal.wait_for("sleep");
    fake.kill();
    terminal.wait_for("has ended");
    terminal.press("\x1b[A");
    terminal.wait_for("Enter look into");
    terminal.press("q");
    let (status, seen) = terminal.end(&before);
    assert_eq!(status.code(), Some(0));
    assert!(seen.find("has ended") < seen.find(LEFT), "{seen:?}");
}

#[test]
fn no_color_is_honoured() {
    let fake = Fake::status_page();
    let before = fresh_mode();
    let colours = |no_color: Option<&str>| {
        let mut command = top(&fake);
        command.env_remove("NO_COLOR");
        if let Some(value) = no_color {
            command.env("NO_COLOR", value);
        }
        let mut terminal = Terminal::start(command);
        terminal.wait_for("size classes");
        terminal.press("q");
        let (_, seen) = terminal.end(&before);
        seen.contains("38;5;")
    };
    Writer::new(&fake).during(|| {
        assert!(colours(None));
        assert!(!colours(Some("1")));
    });
}
