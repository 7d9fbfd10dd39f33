//! The steps of the tour of virtual memory, performed in this process. Each is reported with the
//! kernel's figures before and after it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::heap;
use crate::machine;
use crate::memory::{Snapshot, Step, Told};
use crate::pagemap::page_size;

/// How long the process is idle, to show which memory goes back without a call.
const IDLE: Duration = Duration::from_secs(2);

/// Takes the tour with a block and a file of these sizes, and reports each step on standard output
/// when it is done.
///
/// # Errors
/// If memory or room for the file is short, or /proc cannot be read.
pub fn take(bytes: usize, file_bytes: usize) -> anyhow::Result<()> {
    heap_steps(bytes)?;
    file_steps(file_bytes)
}

fn heap_steps(bytes: usize) -> anyhow::Result<()> {
    let p = step(Step::Malloc, || non_null(heap::malloc(bytes)))?;
    // SAFETY: taken above, freed once.
    step(Step::FreeUntouched, || unsafe { freed(p) })?;
    let p = step(Step::Calloc, || non_null(heap::calloc(bytes)))?;
    // SAFETY: the block is live, has `bytes` bytes and is this thread's own.
    step(Step::Read, || unsafe { read_through(p, bytes) })?;
    // SAFETY: as above.
    step(Step::Write, || unsafe { written_through(p, bytes) })?;
    // SAFETY: taken by calloc, freed once.
    step(Step::Free, || unsafe { freed(p) })?;
    step(Step::Idle, || {
        std::thread::sleep(IDLE);
        Ok(())
    })
}

fn file_steps(bytes: usize) -> anyhow::Result<()> {
    let mut file = temporary_file()?;
    file.set_len(bytes as u64)?;
    let p = step(Step::MapFile, || mapped(&file, bytes))?;
    // SAFETY: the mapping has `bytes` bytes, and the file is as long.
    step(Step::WriteFile, || unsafe { written_through(p, bytes) })?;
    step(Step::ReadFile, || read_back(&mut file, bytes))?;
    step(Step::UnmapFile, || {
        // SAFETY: the mapping was made above and is no longer in use.
        let rc = unsafe { libc::munmap(p.cast(), bytes) };
        ensure!(rc == 0, "munmap: {}", std::io::Error::last_os_error());
        Ok(())
    })
}

/// Performs one step between two snapshots of the process, and reports it.
fn step<T>(step: Step, action: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let before = Snapshot::now()?;
    let start = Instant::now();
    let result = action()?;
    let elapsed = start.elapsed();
    let after = Snapshot::now()?;
    println!(
        "{}",
        Told {
            step,
            elapsed,
            before,
            after
        }
        .line()
    );
    std::io::stdout().flush()?;
    Ok(result)
}

fn non_null(p: *mut u8) -> anyhow::Result<*mut u8> {
    ensure!(!p.is_null(), "the allocator has no such block");
    Ok(p)
}

/// # Safety
/// - `p` is a live block of the heap that is no longer in use.
unsafe fn freed(p: *mut u8) -> anyhow::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { heap::free(p) };
    Ok(())
}

/// Reads one byte per page, which must be zero.
///
/// # Safety
/// - `p` has `bytes` readable bytes that no other thread writes meanwhile.
unsafe fn read_through(p: *const u8, bytes: usize) -> anyhow::Result<()> {
    for at in (0..bytes).step_by(page_size() as usize) {
        // SAFETY: `at` lies within the block.
        let byte = unsafe { p.add(at).read_volatile() };
        ensure!(byte == 0, "calloc's byte {at} is not zero");
    }
    Ok(())
}

/// Writes one byte per page.
///
/// # Safety
/// - `p` has `bytes` writable bytes that no other thread uses meanwhile.
unsafe fn written_through(p: *mut u8, bytes: usize) -> anyhow::Result<()> {
    for at in (0..bytes).step_by(page_size() as usize) {
        // SAFETY: `at` lies within the block.
        unsafe { p.add(at).write_volatile(1) };
    }
    Ok(())
}

/// A file without a name, which is gone with the process.
fn temporary_file() -> anyhow::Result<File> {
    let name = format!("neap-lab-memory-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(&path);
    let file = file.with_context(|| format!("cannot make {path:?}"))?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn mapped(file: &File, bytes: usize) -> anyhow::Result<*mut u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let (kind, fd) = (libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, kind, fd, 0) };
    ensure!(
        p != libc::MAP_FAILED,
        "mmap: {}",
        std::io::Error::last_os_error()
    );
    Ok(p.cast())
}

/// Reads the file by read(2): every page must hold the byte that was written to the mapping.
fn read_back(file: &mut File, bytes: usize) -> anyhow::Result<()> {
    let page = page_size() as usize;
    let mut buffer = vec![0; page];
    for at in (0..bytes).step_by(page) {
        let wanted = page.min(bytes - at);
        file.read_exact(&mut buffer[..wanted])?;
        ensure!(
            buffer[0] == 1,
            "read(2) does not see byte {at} of the mapping"
        );
    }
    Ok(())
}

/// The most bytes that the tour needs: the block, and the file in the page cache.
///
/// # Errors
/// If this machine has less free memory.
pub fn ensure_room(bytes: u64, file_bytes: u64) -> anyhow::Result<()> {
    const SPARE: u64 = 128 << 20;
    let (needed, available) = (bytes + file_bytes + SPARE, machine::available_bytes()?);
    ensure!(
        needed <= available,
        "the tour needs {} MiB of memory, and {} MiB are available: a smaller --mib will do",
        needed >> 20,
        available >> 20
    );
    Ok(())
}
