//! The loops whose instructions are counted under callgrind. They are written so that the compiler
//! generates the same code as for the C loop: a call through the global offset table for malloc,
//! one for free, and two to four instructions around them.
//!
//! Valgrind's client request "toggle collection" makes callgrind count a stretch of the worker and
//! nothing before or after it. Outside valgrind it has no effect. The request is a sequence that
//! valgrind recognises: four rotations of rdi by 128 bits in total and an exchange of a register
//! with itself, with the address of six words in rax.

use std::ffi::c_void;

use anyhow::Context as _;

use super::heap;
use super::single::permutation;
use crate::workloads::Order;

/// A stretch of code whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// Malloc, then free at once, with its loop.
    Pair { size: usize },
    /// `count` blocks, then freed in the order of allocation, with both loops.
    Fifo { size: usize, count: usize },
    /// The frees of `count` blocks in random order, with their loop.
    Scattered { size: usize, count: usize },
    /// Only the call of an entry point.
    Entry(Entry),
}

/// A call that is served without a slow path (a *hit*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A function that only returns: the cost of counting, plus one instruction.
    Nothing,
    /// `malloc(64)`.
    Malloc,
    /// `free` of 64 bytes.
    Free,
    /// `calloc(1, 64)`.
    Calloc,
    /// `realloc` from 60 to 64 bytes, the same class everywhere.
    Realloc,
    /// `realloc` from 64 to 128 bytes, which moves the block almost everywhere.
    Grow,
    /// `aligned_alloc(64, 64)`.
    Aligned,
    /// `operator new(64, align_val_t(64))`.
    NewAligned,
    /// `operator new(64)`.
    New,
    /// `operator delete` of 64 bytes.
    Delete,
    /// The same with the size.
    DeleteSized,
    /// `free` of null.
    FreeNull,
}

/// A counted stretch with its name and the loop lengths whose difference is taken.
pub struct Counted {
    /// Its name on the command line and in the records.
    pub name: &'static str,
    /// Its work.
    pub stretch: Stretch,
    /// The two loop lengths, in pairs.
    pub lengths: (u64, u64),
}

impl Counted {
    const fn of(name: &'static str, stretch: Stretch) -> Counted {
        let lengths = match stretch {
            Stretch::Pair { size } if size > 32 << 10 => (2_560, 12_800),
            Stretch::Pair { .. } => (2_000, 12_000),
            Stretch::Fifo { .. } => (20_000, 60_000),
            Stretch::Scattered { count, .. } => (count as u64, 2 * count as u64),
            Stretch::Entry(_) => (100, 1_100),
        };
        Counted {
            name,
            stretch,
            lengths,
        }
    }
}

const fn pair(name: &'static str, size: usize) -> Counted {
    Counted::of(name, Stretch::Pair { size })
}

const fn fifo(name: &'static str, size: usize) -> Counted {
    Counted::of(name, Stretch::Fifo { size, count: 1_000 })
}

const fn scattered(name: &'static str, size: usize) -> Counted {
    let count = 50_000;
    Counted::of(name, Stretch::Scattered { size, count })
}

const fn entry(name: &'static str, entry: Entry) -> Counted {
    Counted::of(name, Stretch::Entry(entry))
}

/// The counts of `bench` for every peer: a pair of malloc and free, loop included.
pub const PAIRS: &[Counted] = &[
    pair("pair-16", 16),
    pair("pair-64", 64),
    pair("pair-1024", 1_024),
    fifo("fifo-64", 64),
    fifo("fifo-1024", 1_024),
];

/// Counted for the golden file: blocks that the cache of spans serves. One free in 256 does more.
pub const LARGE: &[Counted] = &[pair("large-64k", 64 << 10), pair("large-1m", 1 << 20)];

/// Counted for the golden file: frees that miss the magazine.
pub const SCATTERED: &[Counted] = &[
    scattered("scattered-64", 64),
    scattered("scattered-256", 256),
];

/// The contents of the golden file for the shipped library.
pub const ENTRIES: &[Counted] = &[
    entry("malloc-64", Entry::Malloc),
    entry("free-64", Entry::Free),
    entry("calloc-64", Entry::Calloc),
    entry("realloc-64", Entry::Realloc),
    entry("realloc-64-to-128", Entry::Grow),
    entry("aligned-alloc-64", Entry::Aligned),
    entry("new-64", Entry::New),
    entry("new-aligned-64", Entry::NewAligned),
    entry("delete-64", Entry::Delete),
    entry("delete-sized-64", Entry::DeleteSized),
    entry("free-null", Entry::FreeNull),
];

/// Counted for the golden file in hardened mode. The loops are long enough for batches and refills
/// to average out. By the end of the shorter one the magazine has its full capacity, which depends
/// on what the process used before.
pub const HARDENED: Counted = Counted {
    lengths: (100_000, 200_000),
    ..pair("pair-64-long", 64)
};

/// The cost of counting an entry point, plus the `ret` of a function that does nothing.
pub const NOTHING: Counted = entry("nothing", Entry::Nothing);

/// The counted stretch with that name.
pub fn find(name: &str) -> Option<&'static Counted> {
    PAIRS
        .iter()
        .chain(ENTRIES)
        .chain(LARGE)
        .chain(SCATTERED)
        .chain([&HARDENED, &NOTHING])
        .find(|c| c.name == name)
}

/// Runs `ops` pairs of the stretch between two toggles of callgrind's counting.
///
/// # Errors
/// If the architecture has no such toggle, or the process no C++ operators.
pub fn carry_out(stretch: Stretch, ops: u64) -> anyhow::Result<()> {
    anyhow::ensure!(SUPPORTED, "instructions are counted on x86-64 only");
    match stretch {
        Stretch::Pair { size } => count_pairs(size, ops),
        Stretch::Fifo { size, count } => count_fifo(size, count, ops),
        Stretch::Scattered { size, count } => count_scattered(size, count, ops),
        Stretch::Entry(entry) => return count_entry(entry, ops),
    }
    Ok(())
}

#[inline(never)]
fn count_pairs(size: usize, ops: u64) {
    toggle();
    let mut left = ops;
    while left != 0 {
        let p = heap::malloc(size);
        // SAFETY: allocated in the line above.
        unsafe { heap::free(p) };
        left -= 1;
    }
    toggle();
}

#[inline(never)]
fn count_fifo(size: usize, count: usize, ops: u64) {
    let mut blocks = vec![std::ptr::null_mut::<u8>(); count];
    toggle();
    for _ in 0..ops / count as u64 {
        for block in &mut blocks {
            *block = heap::malloc(size);
        }
        for &block in &blocks {
            // SAFETY: allocated in the loop above, each freed once.
            unsafe { heap::free(block) };
        }
    }
    toggle();
}

#[inline(never)]
fn count_scattered(size: usize, count: usize, ops: u64) {
    let turns = permutation(count, Order::Random);
    for _ in 0..ops / count as u64 {
        let blocks: Vec<_> = (0..count).map(|_| heap::malloc(size)).collect();
        let scattered: Vec<_> = turns.iter().map(|&turn| blocks[turn as usize]).collect();
        toggle();
        for &block in &scattered {
            // SAFETY: allocated above, each freed once.
            unsafe { heap::free(block) };
        }
        toggle();
    }
}

fn count_entry(entry: Entry, ops: u64) -> anyhow::Result<()> {
    let function = entry.function()?;
    for _ in 0..ops {
        let (a, b) = entry.arguments()?;
        // SAFETY: `function` is the entry point of that name, and the arguments are made for it.
        let result = unsafe { counted_call(function, a, b) };
        entry.tidy(result)?;
    }
    Ok(())
}

impl Entry {
    /// The address that a call from this program reaches.
    fn function(self) -> anyhow::Result<*const c_void> {
        let name = match self {
            Entry::Nothing => return Ok(nothing()),
            Entry::Malloc => c"malloc",
            Entry::Free | Entry::FreeNull => c"free",
            Entry::Calloc => c"calloc",
            Entry::Realloc | Entry::Grow => c"realloc",
            Entry::Aligned => c"aligned_alloc",
            Entry::New => c"_Znwm",
            Entry::NewAligned => c"_ZnwmSt11align_val_t",
            Entry::Delete => c"_ZdlPv",
            Entry::DeleteSized => c"_ZdlPvm",
        };
        let address =
            heap::symbol(name).with_context(|| format!("no library here has {name:?}"))?;
        Ok(address.cast_const())
    }

    /// Arguments for one call: sizes, or a fresh block.
    fn arguments(self) -> anyhow::Result<(usize, usize)> {
        Ok(match self {
            Entry::Nothing | Entry::FreeNull => (0, 0),
            Entry::Malloc | Entry::New => (64, 0),
            Entry::Calloc => (1, 64),
            Entry::Free => (heap::malloc(64) as usize, 0),
            Entry::Realloc => (heap::malloc(60) as usize, 64),
            Entry::Grow => (heap::malloc(64) as usize, 128),
            Entry::Aligned | Entry::NewAligned => (64, 64),
            Entry::Delete | Entry::DeleteSized => {
                let (new, _) = operators()?;
                // SAFETY: operator new has no precondition.
                (unsafe { new(64) } as usize, 64)
            }
        })
    }

    /// Frees what the call allocated.
    fn tidy(self, result: usize) -> anyhow::Result<()> {
        match self {
            Entry::Nothing | Entry::Free | Entry::FreeNull | Entry::Delete | Entry::DeleteSized => {
            }
            Entry::New => {
                let (_, delete) = operators()?;
                // SAFETY: the call returned a live object, which only this function has.
                unsafe { delete(result as *mut c_void) };
            }
            // SAFETY: the call returned a live block, which only this function has; what aligned
            // `new` gave is one in all allocators.
            _ => unsafe { heap::free(result as *mut u8) },
        }
        Ok(())
    }
}

fn operators() -> anyhow::Result<(heap::OperatorNew, heap::OperatorDelete)> {
    heap::operators().context("no library here has the C++ operators")
}

/// Whether counting works on this architecture; others need another sequence.
pub const SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// `VG_USERREQ_TOOL_BASE('C', 'T') + 2` of valgrind's callgrind.h, and five arguments.
#[cfg(target_arch = "x86_64")]
static TOGGLE_COLLECT: [u64; 6] = [0x4354_0002, 0, 0, 0, 0, 0];

/// Switches callgrind's counting on or off.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn toggle() {
    // SAFETY: the sequence changes only rdx, and valgrind reads six words.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") TOGGLE_COLLECT.as_ptr(), inout("rdx") 0u64 => _, options(nostack)
        );
    }
}

/// Calls `function(a, b)` with the counting on. The code counted around the function is written
/// here and not left to the compiler, so that a call of [`nothing`] costs the same. Callgrind adds
/// up a straight run of code when the next one begins, so the run that ends in the first request
/// counts as well. The jump before it keeps the caller's code out.
///
/// # Safety
/// - `function` is a C function of at most two integer or pointer arguments that does not unwind.
/// - Its own preconditions hold for `a` and `b`.
#[cfg(target_arch = "x86_64")]
pub unsafe fn counted_call(function: *const c_void, a: usize, b: usize) -> usize {
    let mut result = a;
    // SAFETY: as in `toggle`; the C function keeps r12 to r15, and all else is declared lost.
    unsafe {
        core::arch::asm!(
            "jmp 2f", "2:", "mov rax, r13", "xor edx, edx",
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            "mov rdi, r14", "mov rsi, r15", "call r12", "mov r14, rax",
            "mov rax, r13", "xor edx, edx",
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("r12") function, in("r13") TOGGLE_COLLECT.as_ptr(),
            inout("r14") result, in("r15") b, clobber_abi("C")
        );
    }
    result
}

/// The address of a function that only returns.
#[cfg(target_arch = "x86_64")]
pub fn nothing() -> *const c_void {
    #[unsafe(naked)]
    extern "C" fn only_returns() {
        core::arch::naked_asm!("ret")
    }
    only_returns as *const c_void
}

/// Other architectures: no effect.
#[cfg(not(target_arch = "x86_64"))]
pub fn toggle() {}

/// Other architectures: never called, see [`SUPPORTED`].
///
/// # Safety
/// - None here.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn counted_call(_function: *const c_void, _a: usize, _b: usize) -> usize {
    unreachable!("nothing is counted on this machine")
}

/// Other architectures: no function.
#[cfg(not(target_arch = "x86_64"))]
pub fn nothing() -> *const c_void {
    std::ptr::null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_found_by_its_name_and_its_lengths_differ() {
        for counted in PAIRS.iter().chain(ENTRIES).chain(SCATTERED) {
            assert_eq!(find(counted.name).unwrap().stretch, counted.stretch);
            assert!(counted.lengths.0 < counted.lengths.1);
        }
    }

    #[test]
    fn the_loops_run_outside_of_valgrind() {
        let entries = ENTRIES[..4].iter().chain([&NOTHING]);
        for counted in PAIRS.iter().chain(SCATTERED).chain(entries) {
            carry_out(counted.stretch, counted.lengths.0).unwrap();
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_counted_call_hands_over_both_arguments_and_the_result() {
        extern "C" fn difference(a: usize, b: usize) -> usize {
            a - b
        }
        // SAFETY: the function takes two integers and does not unwind for these.
        let result = unsafe { counted_call(difference as *const c_void, 50, 8) };
        assert_eq!(result, 42);
    }
}
