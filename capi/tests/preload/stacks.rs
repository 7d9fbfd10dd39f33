//! Stacks for coroutines, as C and C++ programs use them.

use crate::older_kernel::{self, Kernel};
use crate::skips;
use crate::support::{self, Artifact, Machine, compile, passes_with};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

fn passes(source: &str) {
    let library = support::library();
    passes_with(source, &[library.as_os_str()], &[]);
}

#[test]
fn stacks_from_c() {
    passes("programs/stacks.c");
}

/// Runs `overflow.c`, which must die of SIGSEGV; what it wrote on both outputs.
fn faults(how: &str) -> Option<(String, String)> {
    overflows_on(Kernel::Own, how, libc::SIGSEGV)
}

/// The signal that an access to a guard raises here.
fn guard_signal() -> i32 {
    match Machine::under_test() {
        Machine::Own => older_kernel::guard_signal(),
        // Emulators have guards that are mappings.
        _ => libc::SIGSEGV,
    }
}

/// Runs `overflow.c`, which must die in a guard; what it wrote on both outputs.
fn overflows(how: &str) -> Option<(String, String)> {
    overflows_on(Kernel::Own, how, guard_signal())
}

/// Runs `overflow.c`, which must die of this signal; what it wrote on both outputs.
fn overflows_on(kernel: Kernel, how: &str, signal: i32) -> Option<(String, String)> {
    let library = support::library();
    let program = compile(
        "programs/overflow.c",
        Artifact::Program,
        &[library.as_os_str()],
    )?;
    Some(dies_on(kernel, &program, &[how], signal))
}

/// Runs a program, which must die of this signal; what it wrote on both outputs.
fn dies_on(kernel: Kernel, program: &Path, how: &[&str], signal: i32) -> (String, String) {
    let arguments: Vec<_> = how.iter().map(OsStr::new).collect();
    let mut command = support::preloaded(program, &arguments);
    support::limit(&mut command, libc::RLIMIT_CORE, 0);
    older_kernel::run_on(&mut command, kernel);
    let output = support::output_of(&mut command);
    let stderr = support::without_addresses(&support::text(&output.stderr));
    assert_eq!(output.status.signal(), Some(signal), "{how:?}: {stderr}");
    (support::text(&output.stdout), stderr)
}

/// The line that every overflow of a stack of 64 KiB ends in.
fn line(owner: &str) -> String {
    line_of(64 << 10, owner)
}

/// The line that every overflow of a stack of this size ends in.
fn line_of(bytes: usize, owner: &str) -> String {
    // One OS page of the size is the guard's, and another one at least may be used.
    // SAFETY: takes no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let bytes = (bytes - page.min(bytes)).max(page);
    format!("neap: stack overflow at ADDR, in the guard of a stack of {bytes} bytes{owner}\n")
}

fn reports(how: &str, owner: &str, stdout: &str) {
    if let Some(output) = overflows(how) {
        assert_eq!(output, (stdout.to_owned(), line(owner)), "{how}");
    }
}

const OWNER: &str = " (owner \"a coroutine\")";

#[test]
fn an_overflow_is_one_line() {
    reports("plain", OWNER, "");
}

#[test]
fn an_owners_name_is_escaped_and_whole() {
    let lines = format!("{}\\n", "0123456789".repeat(5).trim_end_matches('9')).repeat(10);
    reports("lines", &format!(" (owner \"\\u{{1b}}[2J{lines}end\")"), "");
}

#[test]
fn who_did_not_ask_dies_in_silence() {
    if let Some(output) = overflows("silent") {
        assert_eq!(output, Default::default());
    }
}

#[test]
fn other_faults_go_to_the_programs_handler() {
    reports("handler", OWNER, "");
    reports("siginfo", OWNER, "");
}

#[test]
fn the_programs_handler_runs_on_the_stack_that_it_chose() {
    passes("programs/chosen_stack.c");
}

/// The kernel ends the process, as it does without Neap. Where guards raise SIGBUS, the program's
/// handler of SIGSEGV is not asked, and the overflow is reported.
#[test]
fn a_handler_on_the_overflowed_stack_has_no_room_for_a_report() {
    if let Some(output) = overflows("own-stack") {
        let report = match guard_signal() {
            libc::SIGBUS => line(OWNER),
            _ => String::new(),
        };
        assert_eq!(output, (String::new(), report));
    }
    if let Some(output) = faults("no-room") {
        assert_eq!(output, Default::default());
    }
}

#[test]
fn a_handler_for_one_fault_is_called_once() {
    if let Some(output) = faults("once") {
        assert_eq!(
            output,
            Default::default(),
            "the second fault has the default action"
        );
    }
}

#[test]
fn a_signal_that_is_ignored_stays_so_unless_it_is_a_fault() {
    reports("ignored", OWNER, "on\n");
}

#[test]
fn other_faults_and_sent_signals_have_the_default_action() {
    for how in ["sent", "elsewhere"] {
        if let Some(output) = faults(how) {
            assert_eq!(output, Default::default(), "{how}");
        }
    }
}

#[test]
fn a_thread_that_asks_has_a_stack_for_the_handler() {
    reports("thread", " (owner \"worker 7\")", "");
}

/// Without guards by advice, they are by write protection, which raises SIGBUS.
#[test]
fn an_overflow_on_an_older_kernel_is_one_line_and_sigbus() {
    if !older_kernel::has_write_guards() {
        return skips::announce("no guards by write protection (userfaultfd) here");
    }
    if Machine::under_test() != Machine::Own {
        return skips::announce("an emulator has no userfaultfd");
    }
    for how in ["plain", "bus", "handler", "siginfo"] {
        if let Some(output) = overflows_on(Kernel::WithoutAdvice, how, libc::SIGBUS) {
            assert_eq!(output, (String::new(), line(OWNER)), "{how}");
        }
    }
    if let Some(output) = overflows_on(Kernel::WithoutAdvice, "silent", libc::SIGBUS) {
        assert_eq!(output, Default::default());
    }
}

/// Distributions build C libraries without probes.
#[test]
fn no_frame_without_probes_leaps_over_a_guard() {
    let library = support::library();
    let flags = [
        library.as_os_str(),
        OsStr::new("-fno-stack-clash-protection"),
    ];
    let Some(program) = compile("programs/leap.c", Artifact::Program, &flags) else {
        return;
    };
    let own = Machine::under_test() == Machine::Own;
    let mut kernels = vec![(Kernel::Own, guard_signal())];
    if own && older_kernel::has_write_guards() {
        kernels.push((Kernel::WithoutAdvice, libc::SIGBUS));
    }
    if own {
        kernels.push((Kernel::WithoutUserfaultfd, libc::SIGSEGV));
    }
    for (kernel, signal) in kernels {
        for kib in [8, 16, 32, 64, 1024] {
            for frame in ["8216", "16400", "33312", "stderr"] {
                let bytes = kib << 10;
                let how = [&*bytes.to_string(), frame];
                let expected = (String::new(), line_of(bytes, " (owner \"leaping\")"));
                let output = dies_on(kernel, &program, &how, signal);
                assert_eq!(output, expected, "{kernel:?}, {kib} KiB, {frame}");
            }
        }
    }
}

#[test]
fn fibers_of_boost() {
    if !Path::new("/usr/include/boost/context/fiber.hpp").exists() {
        return skips::skipped("no Boost.Context here (Debian: apt install libboost-context-dev)");
    }
    let library = support::library();
    let flags = [library.as_os_str(), OsStr::new("-lboost_context")];
    passes_with("programs/boost_context.cc", &flags, &[]);
}
