//! Runs a program under ptrace(2), and makes chosen system calls of the library fail.
//!
//! A call is the library's if the instruction after it, or its caller's, is the library's code: the
//! library calls the kernel itself, or by one of the C library's functions. In the second case the
//! return address into the library is among the stack's first words, before any into the program.

use libc::ptrace_syscall_info;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use syscalls::Sysno;

/// A system call, and which of its operations if it has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub number: Sysno,
    /// What a futex call does, an advice says, a process's control is for; 0 otherwise.
    pub operation: u64,
}

impl Call {
    fn new(number: u64, arguments: [u64; 6]) -> Option<Self> {
        /// Bits of a futex's operation that say how, and not what.
        const FUTEX_FLAGS: u64 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
        let number = Sysno::new(number as usize)?;
        let operation = match number {
            Sysno::futex => arguments[1] & !FUTEX_FLAGS,
            Sysno::madvise => arguments[2],
            Sysno::prctl => arguments[0],
            _ => 0,
        };
        Some(Self { number, operation })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.number.name())?;
        match self.operation {
            0 => Ok(()),
            operation => write!(out, "({operation})"),
        }
    }
}

/// Where the library makes a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub call: Call,
    /// The offset in the library to which the call returns.
    pub offset: u64,
}

/// How often a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The first time in the run.
    Once,
    /// Each time, in every process and thread.
    Always,
}

/// A call that is to fail.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    pub site: Site,
    pub error: Errno,
    pub times: Times,
}

/// What a run did.
pub struct Run {
    /// Exit status 0, or how it ended.
    pub end: Result<(), String>,
    pub stderr: String,
    /// The library's system calls, and how often each was made.
    pub calls: BTreeMap<Site, u64>,
    /// How many of them failed because they were told to.
    pub injected: u64,
}

/// Runs `command` to its end. After `most`, the run is killed, which its end says.
pub fn trace(
    command: &mut Command,
    library: &Path,
    injection: Option<Injection>,
    most: Duration,
) -> Run {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    // SAFETY: one system call, which allocates nothing.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
    let mut child = command.spawn().expect("the program starts");
    let root = Pid::from_raw(child.id() as i32);
    let mut tracer = Tracer::new(root, library, injection);
    let killed = within(root, most, || tracer.run());
    let end = match (killed, tracer.end.take()) {
        (true, _) => Err(format!("it did not end within {most:?}")),
        (false, end) => end.expect("the program ended"),
    };
    Run {
        end,
        stderr: written(&mut child),
        calls: tracer.calls,
        injected: tracer.injected,
    }
}

/// Kills the group of `root` if `work` takes longer than `most`; true if so.
fn within(root: Pid, most: Duration, work: impl FnOnce()) -> bool {
    let (done, wait) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let late = wait.recv_timeout(most) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            let _ = killpg(root, Signal::SIGKILL);
        }
        late
    });
    work();
    drop(done);
    watch.join().expect("the watch ends")
}

/// What the program wrote on stderr. It has ended, and so have its children.
fn written(child: &mut Child) -> String {
    let mut text = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut text).expect("text");
    text
}

/// The words of a stack among which the return address into the library is looked for.
const WORDS: usize = 48;

struct Tracer<'l> {
    root: Pid,
    library: &'l Path,
    /// The code of the library and of the program, once both are mapped. A fork has them at the
    /// same place.
    codes: Option<[Code; 2]>,
    injection: Option<Injection>,
    /// The threads that are traced; the error that a thread's present call is to return.
    threads: HashMap<Pid, Option<Errno>>,
    calls: BTreeMap<Site, u64>,
    injected: u64,
    end: Option<Result<(), String>>,
}

impl<'l> Tracer<'l> {
    fn new(root: Pid, library: &'l Path, injection: Option<Injection>) -> Self {
        Self {
            root,
            library,
            codes: None,
            injection,
            threads: HashMap::new(),
            calls: BTreeMap::new(),
            injected: 0,
            end: None,
        }
    }

    /// Follows the program, its threads and its children until all have ended.
    fn run(&mut self) {
        // Of this thread's children alone: tests beside this one have children as well.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            let status = match waitpid(None, Some(flags)) {
                Ok(status) => status,
                Err(Errno::ECHILD) => return,
                Err(error) => panic!("waitpid: {error}"),
            };
            // A thread that was killed meanwhile is gone: its end is reported next.
            match self.step(status) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => panic!("ptrace: {error}"),
            }
        }
    }

    fn step(&mut self, status: WaitStatus) -> nix::Result<()> {
        match status {
            WaitStatus::PtraceSyscall(pid) => {
                self.at_call(pid)?;
                ptrace::syscall(pid, None)
            }
            WaitStatus::Stopped(pid, signal) => self.stopped(pid, signal),
            WaitStatus::PtraceEvent(pid, ..) => ptrace::syscall(pid, None),
            WaitStatus::Exited(pid, code) => {
                self.ended(
                    pid,
                    if code == 0 {
                        Ok(())
                    } else {
                        Err(format!("exit status {code}"))
                    },
                );
                Ok(())
            }
            WaitStatus::Signaled(pid, signal, _) => {
                self.ended(pid, Err(format!("killed by {signal}")));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn ended(&mut self, pid: Pid, how: Result<(), String>) {
        self.threads.remove(&pid);
        if pid == self.root {
            self.end = Some(how);
        }
    }

    /// A thread's first stop says that it is traced now. Later ones are signals, which it gets.
    fn stopped(&mut self, pid: Pid, signal: Signal) -> nix::Result<()> {
        if self.threads.insert(pid, None).is_some() {
            return ptrace::syscall(pid, signal);
        }
        if pid == self.root {
            ptrace::setoptions(
                pid,
                Options::PTRACE_O_TRACESYSGOOD
                    | Options::PTRACE_O_TRACECLONE
                    | Options::PTRACE_O_TRACEFORK
                    | Options::PTRACE_O_TRACEVFORK
                    | Options::PTRACE_O_EXITKILL,
            )?;
        }
        ptrace::syscall(pid, None)
    }

    /// At the entry of a system call or at its exit.
    fn at_call(&mut self, pid: Pid) -> nix::Result<()> {
        let info = ptrace::syscall_info(pid)?;
        match info.op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => {
                // SAFETY: at an entry, this is what the kernel filled in.
                let entry = unsafe { info.u.entry };
                let call = Call::new(entry.nr, entry.args);
                let failing = call.and_then(|call| self.entered(pid, call, &info));
                if failing.is_some() {
                    // No such call: the kernel does nothing.
                    let mut registers = ptrace::getregs(pid)?;
                    registers.orig_rax = u64::MAX;
                    ptrace::setregs(pid, registers)?;
                }
                self.threads.insert(pid, failing);
            }
            libc::PTRACE_SYSCALL_INFO_EXIT => {
                if let Some(error) = self.threads.insert(pid, None).flatten() {
                    let mut registers = ptrace::getregs(pid)?;
                    registers.rax = -(error as i64) as u64;
                    ptrace::setregs(pid, registers)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts a call if it is the library's. The error that it is to return, if any.
    fn entered(&mut self, pid: Pid, call: Call, info: &ptrace_syscall_info) -> Option<Errno> {
        let offset = self.caller(pid, info.instruction_pointer, info.stack_pointer)?;
        let site = Site { call, offset };
        let count = self.calls.entry(site).or_default();
        *count += 1;
        let injection = self.injection.filter(|injection| injection.site == site)?;
        let due = injection.times == Times::Always || self.injected == 0;
        self.injected += u64::from(due);
        due.then_some(injection.error)
    }

    /// The offset in the library to which a call returns, if the library made it.
    fn caller(&mut self, pid: Pid, instruction: u64, stack: u64) -> Option<u64> {
        if self.codes.is_none() {
            self.codes = codes(pid, self.library);
        }
        let [library, program] = self.codes.as_ref()?;
        if let Some(offset) = library.offset(instruction) {
            return Some(offset);
        }
        // Words above the program's own return address are left from earlier calls.
        words_of(pid, stack)
            .into_iter()
            .take_while(|&word| program.offset(word).is_none())
            .filter(|&word| library.offset(word).is_some())
            .find(|&word| follows_call(pid, word))
            .and_then(|word| library.offset(word))
    }
}

/// A file's code in a process.
struct Code {
    addresses: Range<u64>,
    /// Where the file's first mapping begins.
    base: u64,
}

impl Code {
    /// The offset of an address, if it is inside.
    fn offset(&self, address: u64) -> Option<u64> {
        let is_inside = self.addresses.contains(&address);
        is_inside.then(|| address - self.base)
    }

    fn of(maps: &str, file: &Path) -> Option<Self> {
        let file = file.to_str()?;
        let addresses = |line: &str| {
            let (low, high) = line.split_whitespace().next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some(number(low)?..number(high)?)
        };
        let mut lines = maps.lines().filter(|line| line.ends_with(file));
        let first = lines.clone().next()?;
        let code = lines.find(|line| line.contains(" r-xp "))?;
        Some(Self {
            addresses: addresses(code)?,
            base: addresses(first)?.start,
        })
    }
}

/// The code of the library and of the program, once the library is mapped.
fn codes(pid: Pid, library: &Path) -> Option<[Code; 2]> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some([Code::of(&maps, library)?, Code::of(&maps, &program)?])
}

/// Whether an address in code may be where a call returns. Addresses of functions, which callers
/// leave on the stack, are none.
fn follows_call(pid: Pid, address: u64) -> bool {
    let mut before = [0; 6];
    let memory = File::open(format!("/proc/{pid}/mem"));
    let read = memory.and_then(|memory| memory.read_exact_at(&mut before, address - 6));
    // A call to a fixed distance, or one of several lengths by a register or by memory.
    read.is_ok() && (before[1] == 0xe8 || [0, 3, 4].iter().any(|&at| before[at] == 0xff))
}

/// The words at the top of a stack.
fn words_of(pid: Pid, stack: u64) -> Vec<u64> {
    let mut bytes = [0; WORDS * 8];
    let memory = File::open(format!("/proc/{pid}/mem"));
    let read = memory.and_then(|memory| memory.read_at(&mut bytes, stack));
    let (words, _) = bytes[..read.unwrap_or(0)].as_chunks::<8>();
    words.iter().map(|&word| u64::from_ne_bytes(word)).collect()
}
