//! Waiting for the program, where something is to be printed after it, so that nobody
//! can tell us from it: signals go through in both directions, and so does the end.

use crate::launch::Program;
use std::io;
use std::mem::{self, MaybeUninit};
use std::process;
use std::ptr;
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl Ending {
    /// Ends this process in the same way; an exit status is left to the caller.
    pub fn imitate(self) -> i32 {
        match self {
            Self::Exit(status) => status,
            Self::Signal(signal) => die_by(signal),
        }
    }
}

/// Who looks at the program while it runs.
pub trait Watch {
    /// How often.
    fn interval(&self) -> Duration;
    /// The program with this number has been started. Every signal is held back from here on, in threads made now, too.
    fn began(&mut self, pid: libc::pid_t);
    /// It is time to look.
    fn tick(&mut self);
}

/// Nobody looks.
pub struct Unwatched;

impl Watch for Unwatched {
    fn interval(&self) -> Duration {
        Duration::MAX
    }

    fn began(&mut self, _pid: libc::pid_t) {}

    fn tick(&mut self) {}
}

/// Starts the program and waits until it has ended.
///
/// # Errors
///
/// The program could not be executed; nothing was started then.
pub fn run(program: &Program, watch: &mut impl Watch) -> io::Result<Ending> {
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
                    return Ok(ending);
                }
            }
            Some(signal) => forward(&signal, child),
        }
    }
}

/// When to look next.
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

    /// Times that have gone by meanwhile are left out.
    fn advance(&mut self) {
        let now = Instant::now();
        let next = self.next.and_then(|next| next.checked_add(self.interval));
        self.next = next.map(|next| match next < now {
            true => now + self.interval,
            false => next,
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

/// Whether the kernel sent it because of what we write (a reader of ours that has gone, a limit to the size of files):
/// not the program's business.
fn is_our_own(signal: &libc::siginfo_t) -> bool {
    // SAFETY: of a signal sent by a process, and the kernel fills in ours for these two.
    let sender = unsafe { signal.si_pid() };
    [libc::SIGPIPE, libc::SIGXFSZ].contains(&signal.si_signo)
        && signal.si_code == libc::SI_USER
        && sender == process::id().cast_signed()
}

/// The signals as our caller left them.
struct Signals {
    mask: libc::sigset_t,
    on_child: libc::sigaction,
}

impl Signals {
    /// Keeps every signal pending for [`next_signal`], also if our caller ignores it.
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

    /// Puts back what was there before [`Self::hold`].
    fn give_back(&self) {
        // SAFETY: the pointers lead to values that the same calls have filled in.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.on_child, ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut());
        }
    }
}

/// Forks and executes; an error of the latter comes back through a pipe that a
/// successful execution closes.
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

/// In the child: executes the program. It is killed with us if we are: whoever kills
/// the command that they see means the program.
fn become_program(program: &Program, signals: &Signals, mut writer: io::PipeWriter) -> ! {
    // SAFETY: this operation takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    signals.give_back();
    let error = program.execute();
    let code = error.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
    let told = io::Write::write_all(&mut writer, &code).is_ok();
    // SAFETY: ends this process without running what belongs to our parent.
    unsafe { libc::_exit(i32::from(!told)) }
}

fn failed(child: libc::pid_t, code: i32) -> io::Error {
    // SAFETY: a null pointer says that the status is not wanted.
    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
    io::Error::from_raw_os_error(code)
}

/// The next signal; `None` if there was none for as long as `patience`, or a stop interrupted us.
fn next_signal(patience: Option<Duration>) -> Option<libc::siginfo_t> {
    let patience = patience.map(|patience| libc::timespec {
        tv_sec: patience.as_secs().min(LONGEST_WAIT_S).cast_signed(),
        tv_nsec: patience.subsec_nanos().into(),
    });
    let patience = patience.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut all = MaybeUninit::uninit();
    let mut signal = MaybeUninit::uninit();
    // SAFETY: sigfillset fills `all`; `patience` is null or leads to a value that outlives the call; sigtimedwait fills
    // `signal` unless it returns -1.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        match libc::sigtimedwait(all.as_ptr(), signal.as_mut_ptr(), patience) {
            ..0 => None,
            _ => Some(signal.assume_init()),
        }
    }
}

/// No wait is longer.
const LONGEST_WAIT_S: u64 = 1 << 30;

/// Whether the terminal sent this signal: it has sent it to the program as well, which
/// is in our process group.
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

/// Takes note of every process that has ended or stopped. When it is the program that
/// has stopped, we stop too, so that the shell that started us sees it.
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

/// Stops this process until someone continues it. That someone's SIGCONT stays pending
/// and is handed on to the program.
fn stop() {
    // SAFETY: kill and getpid take no pointers.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

/// Dies by `signal`, leaving no second core file. As the first process of a container,
/// which signals cannot kill, returns what a shell would.
fn die_by(signal: i32) -> i32 {
    // SAFETY: a sigaction of zero bytes is SIG_DFL; the other pointers are null or lead to
    // values that outlive the calls.
    unsafe {
        let default: libc::sigaction = mem::zeroed();
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::sigaction(signal, &raw const default, ptr::null_mut());
        libc::kill(process::id().cast_signed(), signal);
        // Of all that is held back, this one only: another may be pending.
        let mut one: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, ptr::null_mut());
    }
    128 + signal
}
