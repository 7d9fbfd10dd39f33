//! Waits for a program if `neap` has to print something after its end. This process behaves like
//! the program: it passes signals on in both directions, and ends the way the program does.
//! [`Patience`] is a wait that a signal ends early, so that Ctrl-C does not lose what was gathered.

use crate::launch::Program;
use std::mem::{self, MaybeUninit};
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::time::{Duration, Instant};
use std::{io, ptr};

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

/// A program that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// What its PID was.
    pub pid: u32,
    /// How it ended.
    pub ending: Ending,
}

impl Ending {
    /// Ends this process by the same signal; leaves an exit status to the caller.
    pub fn imitate(self) -> i32 {
        match self {
            Self::Exit(status) => status,
            Self::Signal(signal) => die_by(signal),
        }
    }
}

/// Watches the program while it runs.
pub trait Watch {
    /// The interval between ticks.
    fn interval(&self) -> Duration {
        Duration::MAX
    }
    /// The program with this PID has started. From here on every signal is blocked, also in threads
    /// created now.
    fn began(&mut self, _pid: libc::pid_t) {}
    /// Called at every interval.
    fn tick(&mut self) {}
}

/// No watching.
pub struct Unwatched;

impl Watch for Unwatched {}

/// Starts the program and waits until it has ended.
///
/// # Errors
///
/// The program could not be executed; no process is left behind.
pub fn run(program: &Program, watch: &mut impl Watch) -> io::Result<Ended> {
    let signals = Signals::hold();
    let child = start(program, signals)?;
    watch.began(child);
    let interval = watch.interval();
    // `None`: never.
    let mut next = Instant::now().checked_add(interval);
    loop {
        let rest = next.map(|next| next.saturating_duration_since(Instant::now()));
        match next_of(&every_signal(), rest) {
            None => {
                watch.tick();
                // Ticks that have already passed are skipped.
                let now = Instant::now();
                let due = next.and_then(|next| next.checked_add(interval));
                next = due.map(|due| if due < now { now + interval } else { due });
            }
            Some(signal) if signal.si_signo == libc::SIGCHLD => {
                if let Some(ending) = reap(child) {
                    let pid = child.cast_unsigned();
                    return Ok(Ended { pid, ending });
                }
            }
            Some(signal) => forward(&signal, child),
        }
    }
}

fn forward(signal: &libc::siginfo_t, child: libc::pid_t) {
    if !reaches_the_program_anyway(signal) && !is_our_own(signal) {
        // SAFETY: kill takes no pointers; the child has not been waited for, so the number is
        // still its own.
        unsafe { libc::kill(child, signal.si_signo) };
    }
}

/// Whether the kernel sent the signal because of this process's own writes (a closed pipe, a limit
/// on file size). The program must not get it.
fn is_our_own(signal: &libc::siginfo_t) -> bool {
    // SAFETY: of a signal sent by a process, and the kernel fills in ours for these two.
    let sender = unsafe { signal.si_pid() };
    [libc::SIGPIPE, libc::SIGXFSZ].contains(&signal.si_signo)
        && signal.si_code == libc::SI_USER
        && sender == process::id().cast_signed()
}

/// The signals as the caller left them.
#[derive(Clone, Copy)]
struct Signals {
    mask: libc::sigset_t,
    on_child: libc::sigaction,
    on_pipe: libc::sigaction,
}

impl Signals {
    /// Keeps every signal pending for [`next_of`], even if the caller ignores it.
    fn hold() -> Self {
        // SAFETY: its fields are plain numbers and pointers, for which zero bytes are a value.
        let mut before: Self = unsafe { mem::zeroed() };
        let all = every_signal();
        // SAFETY: a sigaction of zero bytes is SIG_DFL without flags.
        let default: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: the pointers lead to values of the right types that outlive the calls.
        unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before.mask);
            libc::sigaction(libc::SIGCHLD, &raw const default, &raw mut before.on_child);
            libc::sigaction(libc::SIGPIPE, ptr::null(), &raw mut before.on_pipe);
        }
        before
    }

    /// Restores the state before [`Self::hold`].
    fn give_back(&self) {
        // SAFETY: the pointers lead to values that the same calls have filled in.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.on_child, ptr::null_mut());
            libc::sigaction(libc::SIGPIPE, &raw const self.on_pipe, ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut());
        }
    }
}

/// Starts the program. The kernel kills it if this process is killed, because a user who kills the
/// visible command means the program.
fn start(program: &Program, signals: Signals) -> io::Result<libc::pid_t> {
    let program = program.clone();
    let mut command = Command::new(program.name());
    // SAFETY: this program has one thread, so the child may do whatever we may.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            signals.give_back();
            // The standard library's `exec` would change the signals.
            Err(program.execute())
        });
    }
    Ok(command.spawn()?.id().cast_signed())
}

/// The next of these signals; `None` if none came within `patience`, or a stop interrupted the
/// wait.
fn next_of(signals: &libc::sigset_t, patience: Option<Duration>) -> Option<libc::siginfo_t> {
    let patience = patience.map(|patience| libc::timespec {
        tv_sec: patience.as_secs().min(LONGEST_WAIT_S).cast_signed(),
        tv_nsec: patience.subsec_nanos().into(),
    });
    let patience = patience.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut signal = MaybeUninit::uninit();
    // SAFETY: `patience` is null or leads to a value that outlives the call; sigtimedwait fills
    // `signal` unless it returns -1.
    unsafe {
        let number = libc::sigtimedwait(signals, signal.as_mut_ptr(), patience);
        (number >= 0).then(|| signal.assume_init())
    }
}

/// Longest wait in seconds.
const LONGEST_WAIT_S: u64 = 1 << 30;

/// Whether the terminal sent this signal. It then sent it to the program as well, which is in the
/// same process group.
fn reaches_the_program_anyway(signal: &libc::siginfo_t) -> bool {
    const SI_KERNEL: i32 = 0x80;
    let by_terminal = [
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGHUP,
        libc::SIGWINCH,
    ];
    signal.si_code == SI_KERNEL && by_terminal.contains(&signal.si_signo)
}

/// Collects each child that has ended or stopped. If the program has stopped, this process stops
/// itself, so that the shell that started it notices.
fn reap(child: libc::pid_t) -> Option<Ending> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a place for one int.
        let process =
            unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
        match process {
            ..=0 => return None,
            _ if process != child => {}
            _ if libc::WIFSTOPPED(status) => stop(),
            _ if libc::WIFSIGNALED(status) => return Some(Ending::Signal(libc::WTERMSIG(status))),
            _ => return Some(Ending::Exit(libc::WEXITSTATUS(status))),
        }
    }
}

/// The set of all signals.
fn every_signal() -> libc::sigset_t {
    let mut set = set_of(&[]);
    // SAFETY: the pointer leads to a set.
    unsafe { libc::sigfillset(&raw mut set) };
    set
}

/// A set of signals.
fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set before it is used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Stops this process until another process continues it. That SIGCONT stays pending and is passed
/// on to the program.
fn stop() {
    // SAFETY: kill and getpid take no pointers.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

/// Dies by `signal` without a second core file. As the first process of a container, which signals
/// cannot kill, returns a shell's exit status instead.
fn die_by(signal: i32) -> i32 {
    // SAFETY: a sigaction of zero bytes is SIG_DFL; the other pointers are null or lead to
    // values that outlive the calls.
    unsafe {
        let default: libc::sigaction = mem::zeroed();
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::sigaction(signal, &raw const default, ptr::null_mut());
        libc::kill(process::id().cast_signed(), signal);
        // Unblock only this one, because others may be pending.
        let one = set_of(&[signal]);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, ptr::null_mut());
    }
    128 + signal
}

/// While this value exists, the signals that usually end a program stay pending for
/// [`Patience::ends_within`].
pub struct Patience {
    signals: libc::sigset_t,
    before: libc::sigset_t,
}

const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

impl Patience {
    /// Blocks the signals.
    pub fn new() -> Self {
        let (signals, mut before) = (set_of(&SIGNALS), set_of(&[]));
        // SAFETY: both pointers lead to sets.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, &raw mut before) };
        Self { signals, before }
    }

    /// Waits. True if a signal came.
    pub fn ends_within(&self, time: Duration) -> bool {
        next_of(&self.signals, Some(time)).is_some()
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by the call that held the signals back.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_wait_and_nothing_else_does() {
        let patience = Patience::new();
        assert!(!patience.ends_within(Duration::from_millis(1)));
        // SAFETY: raises a signal that this thread holds back.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGINT) };
        assert!(patience.ends_within(Duration::from_secs(60)));
    }
}
