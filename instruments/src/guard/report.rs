//! The report: what happened, and who allocated and freed the block. It allocates nothing and takes
//! no lock that it would wait for, because it is also made in a handler of SIGSEGV, on a stack of
//! its own.

use super::kernel::POOL;
use super::slots::{Mistake, Slot, State, Wrong};
use super::trace::Trace;
use crate::attach::words::WORDS;
use core::ffi::CStr;
use core::fmt::{self, Write};
use neap_heap::base::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell};
use neap_heap::cache::misuse::Call;
use neap_heap::os::areas;
use neap_heap::os::fault::{Access, Fault, Verdict};
use neap_heap::os::file;
use neap_heap::os::futex;
use neap_heap::os::process;
use neap_heap::os::process::process_id;
use neap_heap::os::process::{Lossy, abort, warn};
use neap_heap::os::shared;
use neap_heap::os::thread::thread_id;

/// The descriptor of standard error.
const STANDARD_ERROR: i32 = 2;
/// Most reports of a process whose handler of SIGSEGV goes on.
const MOST: u32 = 16;
/// How long a thread waits for another one's report.
const PATIENCE_MS: u64 = 10;
const PATIENCES: usize = 200;
/// Bytes of the longest path, and of a line of the kernel's list of mappings.
const LINE: usize = 4096;

/// `NEAP_GUARD_FILE`: a C string.
struct Path(UnsafeCell<[u8; LINE]>);
// SAFETY: written while the process has one thread.
unsafe impl Sync for Path {}
static PATH: Path = Path(UnsafeCell::new([0; LINE]));

/// Sets the file that reports are appended to.
///
/// # Safety
/// - The process has one thread.
pub(crate) unsafe fn keep_path(path: &[u8]) {
    // SAFETY: the caller's promise.
    let kept = unsafe { &mut *PATH.0.get() };
    match kept[..LINE - 1].get_mut(..path.len()) {
        Some(room) => room.copy_from_slice(path),
        None => warn(format_args!("NEAP_GUARD_FILE is ignored: it is too long")),
    }
}

/// What a report is about.
struct Event<'a> {
    what: What<'a>,
    /// The thread that did it.
    by: &'a Trace,
    slot: Option<&'a Slot>,
}

enum What<'a> {
    Fault(&'a Fault),
    Call(Call, usize, Wrong),
}

/// A wrong call: reports it and aborts.
pub(super) fn refuse(call: Call, address: usize, mistake: &Mistake) -> ! {
    let (by, slot) = (Trace::here(), POOL.slot(mistake.number));
    let event = Event {
        what: What::Call(call, address, mistake.wrong),
        by: &by,
        slot: slot.as_ref(),
    };
    event.publish();
    abort()
}

/// In the handler of SIGSEGV.
pub(super) fn on_fault(fault: &Fault) -> Verdict {
    if !POOL.contains(fault.address) {
        return Verdict::Foreign;
    }
    if is_repeated(fault) {
        return Verdict::Reported;
    }
    let by = Trace::interrupted(fault.pc);
    let slot = POOL.meant_by(fault.address);
    let event = Event {
        what: What::Fault(fault),
        by: &by,
        slot: slot.as_ref(),
    };
    event.publish();
    Verdict::Reported
}

/// The address, the instruction and the thread of the last fault.
static LAST_FAULT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Whether this is the last fault again. The program's handler may restore the default action and
/// return, as that of Rust's runtime does. Then the instruction faults a second time.
fn is_repeated(fault: &Fault) -> bool {
    let thread = u64::from(thread_id().unsigned_abs());
    let now = [fault.address as u64, fault.pc as u64, thread];
    let last = LAST_FAULT
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    for (word, now) in LAST_FAULT.iter().zip(now) {
        word.store(now, Ordering::Relaxed);
    }
    now == last
}

/// Memory errors that guarded blocks have shown, for observers.
#[unsafe(link_section = "neap_fork")]
pub(super) static ERRORS: AtomicU64 = AtomicU64::new(0);

/// Counts an error, on the status page as well. Safe in a signal handler.
fn note_error() {
    let now = ERRORS.fetch_add(1, Ordering::Relaxed) + 1;
    if shared::is_mine() {
        WORDS.write_memory_errors(now);
    }
}

/// The thread that reports; 0: none.
#[unsafe(link_section = "neap_fork")]
static REPORTER: futex::Word = futex::Word::new(0);
static REPORTS: AtomicU32 = AtomicU32::new(0);

/// In a fork's child: another thread that was reporting is not there.
pub(super) fn after_fork_in_child() {
    // A store would make the kernel copy the page.
    if REPORTER.load(Ordering::Relaxed) != 0 {
        REPORTER.store(0, Ordering::Relaxed);
    }
}

impl Event<'_> {
    /// Writes the report, unless the process made too many. Other threads that come here wait:
    /// the first that returns may end the process.
    fn publish(&self) {
        let own = thread_id().unsigned_abs();
        let taken = || {
            let order = Ordering::Relaxed;
            REPORTER.compare_exchange(0, own, Ordering::AcqRel, order)
        };
        let mut turns = (0..PATIENCES).map(|_| taken());
        let is_ours = turns.find_map(|taken| match taken {
            Ok(_) => Some(true),
            // A fault in this report itself.
            Err(reporter) if reporter == own => Some(false),
            Err(reporter) => {
                futex::wait(&REPORTER, reporter, Some(PATIENCE_MS));
                None
            }
        });
        if is_ours != Some(false) {
            // First: the report may be the process's last act.
            note_error();
        }
        if is_ours == Some(true) {
            if REPORTS.fetch_add(1, Ordering::Relaxed) < MOST {
                areas::on_stack(|| self.write());
            }
            REPORTER.store(0, Ordering::Release);
        }
    }

    #[inline(never)]
    fn write(&self) {
        warn(format_args!("{self}"));
        // SAFETY: written before other threads; it ends in 0.
        let path = CStr::from_bytes_until_nul(unsafe { &*PATH.0.get() }).unwrap_or_default();
        let named = !path.is_empty() && process::may_query();
        let file = named.then(|| file::open_append(path)).flatten();
        if !file.is_some_and(|file| self.append(file)) {
            let mut out = Out::to(STANDARD_ERROR);
            self.traces(&mut out, Mappings::Unlisted);
        }
    }

    /// Writes the report to the file, and closes it. False if the file does not take all of it.
    fn append(&self, file: i32) -> bool {
        let mut out = Out::to(file);
        let _ = writeln!(out, "neap: {self}");
        self.traces(&mut out, Mappings::Listed);
        file::close(file);
        !out.has_failed
    }

    /// The threads and their calls, and on request the lines of the mappings with their code.
    fn traces(&self, out: &mut Out, mappings: Mappings) {
        let (made, freed) = match self.slot {
            Some(slot) => (slot.made, slot.freed),
            None => (Trace::NONE, Trace::NONE),
        };
        let parts = [
            (self.what.act(), self.by),
            ("the allocation", &made),
            ("the free", &freed),
        ];
        for (what, trace) in parts.iter().filter(|(_, trace)| trace.thread != 0) {
            let thread = trace.thread;
            let _ = writeln!(
                out,
                "  {what} by thread {thread} of process {}:",
                process_id()
            );
            let frames = without_own(trace.frames());
            for (number, &frame) in frames.iter().enumerate() {
                let _ = write!(out, "    #{number} {frame:#x}");
                with_mapping(frame, &mut |mapping| {
                    let (name, offset) = (Lossy(mapping.path()), frame as usize - mapping.base);
                    let _ = write!(out, " {name}+{offset:#x}");
                });
                let _ = writeln!(out);
            }
        }
        if mappings == Mappings::Listed {
            let all = || {
                parts
                    .iter()
                    .flat_map(|(_, trace)| without_own(trace.frames()))
            };
            let _ = writeln!(
                out,
                "  mapped (neap report FILE shows the names of the calls):"
            );
            for (number, &frame) in all().enumerate() {
                with_mapping(frame, &mut |mapping| {
                    let holds = |other: &u64| mapping.holds(*other as usize);
                    if !all().take(number).any(holds) {
                        let _ = writeln!(out, "    {}", Lossy(mapping.line));
                    }
                });
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mappings {
    Listed,
    Unlisted,
}

impl What<'_> {
    /// What the reporting thread did.
    fn act(&self) -> &'static str {
        match self {
            What::Fault(_) => "the access",
            What::Call(_, _, Wrong::Written(_)) => "the free that found it",
            What::Call(..) => "the wrong call",
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.slot.map_or(0, |slot| slot.bytes);
        match self.what {
            What::Fault(fault) => self.fault(fault, out),
            What::Call(_, address, Wrong::Written(at)) => {
                write!(out, "write to {at:#x}, ")?;
                beside(out, at, address, bytes)?;
                out.write_str(", found when the block was freed")
            }
            What::Call(Call::Free, address, Wrong::Freed) => {
                write!(
                    out,
                    "double free of {address:#x} (a block of {bytes} bytes)"
                )
            }
            What::Call(call, address, Wrong::Freed) => {
                write!(out, "{call} of {address:#x}, a block that is already free")
            }
            What::Call(call, address, Wrong::Interior) => write!(
                out,
                "{call} of {address:#x}, which is inside a block of {bytes} bytes and not its start"
            ),
            What::Call(call, address, Wrong::NoBlock) => {
                write!(out, "{call} of {address:#x}, where no block starts")
            }
        }
    }
}

impl Event<'_> {
    fn fault(&self, fault: &Fault, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match fault.access {
            Access::Read => "read of",
            Access::Write => "write to",
            Access::Unknown => "access to",
        };
        let address = fault.address;
        write!(out, "{access} {address:#x}, ")?;
        let Some(slot) = self.slot else {
            return out.write_str("beside a guarded block");
        };
        let is_inside = (slot.start..slot.start + slot.bytes.max(1)).contains(&address);
        match is_inside {
            true => {
                let (byte, bytes) = (address - slot.start, slot.bytes);
                write!(out, "byte {byte} of a block of {bytes} bytes")?;
            }
            false => beside(out, address, slot.start, slot.bytes)?,
        }
        match slot.state() {
            State::Freed => out.write_str(" that was freed"),
            State::Live | State::Unused => Ok(()),
        }
    }
}

/// Where an address lies that is not in the block.
fn beside(out: &mut impl Write, at: usize, start: usize, bytes: usize) -> fmt::Result {
    let end = start + bytes;
    match at.checked_sub(end) {
        Some(0) => write!(out, "right after a block of {bytes} bytes"),
        Some(after) => write!(
            out,
            "{after} bytes after the end of a block of {bytes} bytes"
        ),
        None => {
            let (before, unit) = match start - at {
                1 => (1, "byte"),
                before => (before, "bytes"),
            };
            write!(out, "{before} {unit} before a block of {bytes} bytes")
        }
    }
}

/// The frames without those of the library's own, which are the innermost.
fn without_own(frames: &[u64]) -> &[u64] {
    let is_own = |frame: &&u64| {
        let mut is_own = false;
        with_mapping(**frame, &mut |mapping| {
            let name = mapping.path().rsplit(|&byte| byte == b'/').next();
            is_own = name.is_some_and(|name| name.starts_with(b"libneap"));
        });
        is_own
    };
    &frames[frames.iter().take_while(is_own).count()..]
}

/// A mapping of the process.
struct Mapping<'a> {
    /// Its line in the kernel's list.
    line: &'a [u8],
    range: [usize; 2],
    /// Where the file's first mapping begins.
    base: usize,
}

impl Mapping<'_> {
    fn holds(&self, address: usize) -> bool {
        (self.range[0]..self.range[1]).contains(&address)
    }

    fn path(&self) -> &[u8] {
        path_of(self.line)
    }
}

/// The path at a line's end; empty without one.
fn path_of(line: &[u8]) -> &[u8] {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    words.nth(5).unwrap_or_default().trim_ascii_start()
}

/// Calls `work` with the mapping of code that holds the instruction before `address`, if there is
/// one and the kernel may be asked.
#[inline(never)]
fn with_mapping(address: u64, work: &mut dyn FnMut(&Mapping<'_>)) {
    let Some(file) = allowed(|| file::open_read(c"/proc/self/maps")) else {
        return;
    };
    let mut chunk = [0; LINE];
    // The range and the path's first bytes of the file's first mapping.
    let (mut base, mut known, mut length) = (0, [0; 256], 0);
    let (mut held, mut is_done) = (0, false);
    while !is_done && let Some(got @ 1..) = file::read_some(file, &mut chunk[held..]) {
        let end = held + got;
        let whole = chunk[..end].iter().rposition(|&byte| byte == b'\n');
        let whole = whole.map_or(0, |last| last + 1);
        for line in chunk[..whole].split(|&byte| byte == b'\n') {
            let Some(range) = range_of(line) else {
                continue;
            };
            let path = path_of(line);
            let short = &path[..path.len().min(known.len())];
            if &known[..length] != short {
                (base, length) = (range[0], short.len());
                known[..length].copy_from_slice(short);
            }
            let mapping = Mapping { line, range, base };
            if !is_done && !path.is_empty() && mapping.holds(address as usize - 1) {
                work(&mapping);
                is_done = true;
            }
        }
        chunk.copy_within(whole..end, 0);
        held = end - whole;
        is_done |= held == LINE;
    }
    file::close(file);
}

fn allowed<R>(ask: impl FnOnce() -> Option<R>) -> Option<R> {
    process::may_query().then(ask).flatten()
}

fn range_of(line: &[u8]) -> Option<[usize; 2]> {
    let text = core::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (from, to) = text.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some([number(from)?, number(to)?])
}

/// Lines on their way to a file, each in one write if it is short.
struct Out {
    file: i32,
    line: [u8; 512],
    used: usize,
    has_failed: bool,
}

impl Out {
    fn to(file: i32) -> Out {
        Out {
            file,
            line: [0; 512],
            used: 0,
            has_failed: false,
        }
    }

    fn flush(&mut self) -> fmt::Result {
        let used = core::mem::take(&mut self.used);
        match file::write_all(self.file, &self.line[..used]) {
            true => Ok(()),
            false => {
                self.has_failed = true;
                Err(fmt::Error)
            }
        }
    }
}

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            self.line[self.used] = byte;
            self.used += 1;
            if byte == b'\n' || self.used == self.line.len() {
                self.flush()?;
            }
        }
        Ok(())
    }
}
