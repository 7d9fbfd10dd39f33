//! Waits for a program if `neap` has to print something after its end. This process behaves like
//! the program: it passes signals on in both directions, and ends the way the program does.
//! [`Patience`] is a wait that a signal ends early, so that Ctrl-C does not lose what was gathered.

use crate::launch::Program;
use std::mem::{self, MaybeUninit};
use std::time::{Duration, Instant};
use std::{io, process, ptr};

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
    let child = start(program, &signals)?;
    watch.began(child);
    let mut clock = Clock::new(watch.interval());
    loop {
        match next_signal(clock.rest()) {
            None => {
                watch.tick();
                clock.advance();
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

/// When the next tick is due.
struct Clock {
    interval: Duration,
    next: Option<Instant>,
}

impl Clock {
    fn new(interval: Duration) -> Self {
        let next = Instant::now().checked_add(interval);
        Self { interval, next }
    }

    /// `None`: never.
    fn rest(&self) -> Option<Duration> {
        let now = Instant::now();
        self.next.map(|next| next.saturating_duration_since(now))
    }

    /// Skips ticks that have already passed.
    fn advance(&mut self) {
        let now = Instant::now();
        let next = self.next.and_then(|next| next.checked_add(self.interval));
        self.next = next.map(|next| {
            if next < now {
                now + self.interval
            } else {
                next
            }
        });
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
struct Signals {
    mask: libc::sigset_t,
    on_child: libc::sigaction,
}

impl Signals {
    /// Keeps every signal pending for [`next_signal`], even if the caller ignores it.
    fn hold() -> Self {
        // SAFETY: both are plain numbers and pointers, for which zero bytes are a value.
        let (mut before, all): (Self, libc::sigset_t) = unsafe {
            let mut all = mem::zeroed();
            libc::sigfillset(&raw mut all);
            (mem::zeroed(), all)
        };
        // SAFETY: a sigaction of zero bytes is SIG_DFL without flags.
        let default: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: the pointers lead to values of the right types that outlive the calls.
        unsafe {
            libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut before.mask);
            libc::sigaction(libc::SIGCHLD, &raw const default, &raw mut before.on_child);
        }
        before
    }

    /// Restores the state before [`Self::hold`].
    fn give_back(&self) {
        // SAFETY: the pointers lead to values that the same calls have filled in.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.on_child, ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut());
        }
    }
}

/// Forks and executes. An error of `exec` comes back through a pipe that a successful `exec`
/// closes.
fn start(program: &Program, signals: &Signals) -> io::Result<libc::pid_t> {
    let (mut reader, writer) = io::pipe()?;
    // SAFETY: this program has one thread, so the child may do whatever we may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            become_program(program, signals, writer)
        }
        child => {
            drop(writer);
            let mut code = [0; 4];
            match io::Read::read_exact(&mut reader, &mut code) {
                Err(_) => Ok(child),
                Ok(()) => Err(failed(child, i32::from_ne_bytes(code))),
            }
        }
    }
}

/// In the child: executes the program. The kernel kills it if this process is killed, because a
/// user who kills the visible command means the program.
fn become_program(program: &Program, signals: &Signals, mut writer: io::PipeWriter) -> ! {
    // SAFETY: this operation takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    signals.give_back();
    let error = program.execute();
    let code = error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
    let told = io::Write::write_all(&mut writer, &code).is_ok();
    // SAFETY: ends this process without running handlers that belong to the parent.
    unsafe { libc::_exit(i32::from(!told)) }
}

fn failed(child: libc::pid_t, code: i32) -> io::Error {
    // SAFETY: a null pointer says that the status is not wanted.
    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
    io::Error::from_raw_os_error(code)
}

/// The next signal; `None` if none came within `patience`, or a stop interrupted the wait.
fn next_signal(patience: Option<Duration>) -> Option<libc::siginfo_t> {
    let patience = patience.map(|patience| libc::timespec {
        tv_sec: patience.as_secs().min(LONGEST_WAIT_S).cast_signed(),
        tv_nsec: patience.subsec_nanos().into(),
    });
    let patience = patience.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut all = MaybeUninit::uninit();
    let mut signal = MaybeUninit::uninit();
    // SAFETY: sigfillset fills `all`; `patience` is null or leads to a value that outlives the
    // call; sigtimedwait fills `signal` unless it returns -1.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        match libc::sigtimedwait(all.as_ptr(), signal.as_mut_ptr(), patience) {
            ..0 => None,
            _ => Some(signal.assume_init()),
        }
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
        let mut one: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, signal);
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
        let (mut signals, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each pointer leads to room for a set. sigemptyset fills the first before it is
        // used; pthread_sigmask accepts any set, and fills the second.
        unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            for signal in SIGNALS {
                libc::sigaddset(signals.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), before.as_mut_ptr());
            Self {
                signals: signals.assume_init(),
                before: before.assume_init(),
            }
        }
    }

    /// Waits. True if a signal came.
    pub fn ends_within(&self, time: Duration) -> bool {
        let time = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: both pointers lead to values that outlive the call; null asks for no details of
        // the signal.
        unsafe { libc::sigtimedwait(&raw const self.signals, ptr::null_mut(), &raw const time) > 0 }
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
