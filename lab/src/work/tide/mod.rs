//! The worker of `neap-lab tide`: performs one action per line of its standard input, and reports
//! the result on standard output. Between two lines it is blocked in `read`.

pub mod protocol;
pub mod stacks;

use std::io::{BufRead as _, Write as _};
use std::time::Instant;

use anyhow::{Context as _, ensure};
pub use stacks::thousands;
use stacks::{Crowd, Own, Shared, Source, StackKind};

use super::heap;
use crate::machine;
use crate::pagemap::page_size;
use protocol::{Action, Blocks, Done, Sizes};

/// Serves standard input to its end.
///
/// # Errors
/// If a line is no action, the heap has no memory, or there are no such stacks.
pub fn serve(kind: StackKind, sizes: &Sizes) -> anyhow::Result<()> {
    match kind {
        StackKind::Own => serve_on(&Own, sizes),
        StackKind::Neap => serve_on(&Shared::find()?, sizes),
    }
}

fn serve_on<S: Source>(source: &S, sizes: &Sizes) -> anyhow::Result<()> {
    let mut crowd = Crowd::new(source, sizes.stack_bytes);
    tell(&format!(
        "heap={}",
        crate::work::identity::own_heap()?.display()
    ))?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let action = Action::find(&line).with_context(|| format!("no action {line:?}"))?;
        tell(&carry_out(action, sizes, &mut crowd)?.line()?)?;
    }
    // The process ends here with all of them, because ending each would take longer.
    std::mem::forget(crowd);
    Ok(())
}

fn tell(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn carry_out<S: Source>(
    action: Action,
    sizes: &Sizes,
    crowd: &mut Crowd<'_, S>,
) -> anyhow::Result<Done> {
    let (faults, start) = (machine::own_faults().0, Instant::now());
    let mut full_kib = 0;
    let mut note = String::new();
    match action {
        Action::Allocate => full_kib = come_and_go(sizes)?,
        Action::Create => note = crowd.create(sizes.coroutines),
        Action::Close => crowd.close(),
    }
    let elapsed = start.elapsed();
    Ok(Done {
        faults: machine::own_faults().0 - faults,
        ns: elapsed.as_nanos() as u64,
        full_kib,
        live_kib: crowd.live_bytes() / 1_024,
        coroutines: crowd.len() as u64,
        note,
    })
}

/// Allocates and touches everything, then frees it. Returns the resident KiB in between.
pub fn come_and_go(sizes: &Sizes) -> anyhow::Result<u64> {
    match sizes.blocks {
        Blocks::One => one(sizes.heap_bytes),
        Blocks::Of(bytes) => many(sizes.heap_bytes, bytes),
    }
}

fn one(bytes: usize) -> anyhow::Result<u64> {
    let block = heap::malloc(bytes);
    ensure!(!block.is_null(), "malloc({bytes}) failed");
    // SAFETY: the block is live, has `bytes` bytes and is this thread's own.
    unsafe { touch(block, bytes) };
    let full = machine::resident_kib("self")?;
    // SAFETY: allocated above, and no longer in use.
    unsafe { heap::free(block) };
    Ok(full)
}

/// The blocks form a list, because a table of them would take memory of its own.
fn many(total: usize, bytes: usize) -> anyhow::Result<u64> {
    let mut list: *mut u8 = std::ptr::null_mut();
    for _ in 0..total / bytes {
        let block = heap::malloc(bytes);
        ensure!(!block.is_null(), "malloc({bytes}) failed");
        // SAFETY: the block is live, this thread's own, and has room for an address.
        unsafe {
            touch(block, bytes);
            block.cast::<*mut u8>().write(list);
        }
        list = block;
    }
    let full = machine::resident_kib("self")?;
    while !list.is_null() {
        // SAFETY: every block of the list was taken above; its next is read before it is freed.
        unsafe {
            let next = list.cast::<*mut u8>().read();
            heap::free(list);
            list = next;
        }
    }
    Ok(full)
}

/// Writes one byte per page, and the last byte.
///
/// # Safety
/// - `block` has `bytes` writable bytes, at least one, that no other thread uses meanwhile.
unsafe fn touch(block: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(page_size() as usize) {
        // SAFETY: `at` lies within the block.
        unsafe { block.add(at).write_volatile(1) };
    }
    // SAFETY: the last byte lies within the block.
    unsafe { block.add(bytes - 1).write_volatile(1) };
}
