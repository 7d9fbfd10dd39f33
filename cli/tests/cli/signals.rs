//! The command behaves like the program, even while it waits for it.

use crate::stage::{neap, printed, room};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::{mem, ptr};

const WAYS: [&[&str]; 3] = [&["run"], &["run", "--stats"], &["run", "--leaks"]];

fn shell(flags: &[&str], program: &str) -> Command {
    let mut command = neap();
    command
        .args(flags)
        .args(["--", "sh", "-c", program])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // A shell cannot trap a signal that is ignored when it starts, as SIGHUP is under nohup.
    // SAFETY: signal is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

fn send(child: &Child, signal: i32) {
    // SAFETY: kill takes no pointers; the child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

/// Waits for the line that the program prints when it is ready.
fn ready(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    reader
}

#[test]
fn the_command_dies_by_the_programs_signal() {
    for flags in WAYS {
        for signal in [
            libc::SIGTERM,
            libc::SIGKILL,
            libc::SIGSEGV,
            libc::SIGABRT,
            libc::SIGPIPE,
            libc::SIGINT,
        ] {
            let status = shell(flags, &format!("kill -{signal} $$"))
                .status()
                .unwrap();
            assert_eq!(status.signal(), Some(signal), "{flags:?}: {status}");
        }
    }
}

#[test]
fn signals_to_the_command_reach_the_program() {
    for flags in WAYS {
        for name in ["TERM", "INT", "HUP", "USR1", "QUIT", "WINCH"] {
            let trap = format!("trap 'exit 7' {name}; echo ready; while :; do sleep 0.05; done");
            let mut child = shell(flags, &trap).spawn().unwrap();
            let reader = ready(&mut child);
            send(&child, number(name));
            assert_eq!(child.wait().unwrap().code(), Some(7), "{flags:?}: {name}");
            drop(reader);
        }
    }
}

fn number(name: &str) -> i32 {
    match name {
        "TERM" => libc::SIGTERM,
        "INT" => libc::SIGINT,
        "HUP" => libc::SIGHUP,
        "USR1" => libc::SIGUSR1,
        "QUIT" => libc::SIGQUIT,
        _ => libc::SIGWINCH,
    }
}

#[test]
fn the_command_stops_and_goes_on_with_the_program() {
    for flags in WAYS {
        let child = shell(flags, "kill -STOP $$; exit 3").spawn().unwrap();
        let mut status = 0;
        // SAFETY: `status` is a place for one int.
        let stopped =
            unsafe { libc::waitpid(child.id().cast_signed(), &raw mut status, libc::WUNTRACED) };
        assert_eq!(stopped, child.id().cast_signed());
        assert!(libc::WIFSTOPPED(status), "{flags:?}: {status:x}");
        send(&child, libc::SIGCONT);
        assert_eq!({ child }.wait().unwrap().code(), Some(3), "{flags:?}");
    }
}

#[test]
fn killing_the_command_kills_the_program() {
    for flags in WAYS {
        let left_behind = room();
        let mut command = shell(flags, "echo ready; exec sleep 1000");
        let mut child = command.env("TMPDIR", left_behind.path()).spawn().unwrap();
        let mut reader = ready(&mut child);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "the pipe ends when the program has");
    }
}

#[test]
fn ignored_and_blocked_signals_stay_so() {
    let (ignored, blocked) = (IGNORED.iter().map(bit).sum(), bit(&libc::SIGUSR2));
    for flags in WAYS {
        for (action, expected) in [
            (libc::SIG_DFL, (0, blocked)),
            (libc::SIG_IGN, (ignored, blocked)),
        ] {
            let mut command = neap();
            command.args(flags).args(["cat", "/proc/self/status"]);
            // SAFETY: the closure only calls functions that may be called after fork.
            unsafe { command.pre_exec(move || set_and_block(action)) };
            assert_eq!(masks(&mut command), expected, "{flags:?}");
        }
    }
}

const IGNORED: [i32; 3] = [libc::SIGPIPE, libc::SIGCHLD, libc::SIGINT];

fn bit(signal: &i32) -> u64 {
    1 << (signal - 1)
}

fn set_and_block(action: libc::sighandler_t) -> std::io::Result<()> {
    // SAFETY: the set is initialised by sigemptyset; null says that the old one is not wanted.
    unsafe {
        for signal in IGNORED {
            libc::signal(signal, action);
        }
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR2);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
    }
    Ok(())
}

/// The signals that a program finds ignored and those that it finds blocked.
fn masks(command: &mut Command) -> (u64, u64) {
    let status = printed(command);
    let mask = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    (
        mask("SigIgn:") & IGNORED.iter().map(bit).sum::<u64>(),
        mask("SigBlk:"),
    )
}
