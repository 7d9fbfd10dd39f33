//! Wakes a process's purge thread, which sleeps on a word of the status page, a futex that
//! processes share.

use neap_shared::status_page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

/// Offset of the word.
const AT: usize = status_page::CONTROL_AT + offset_of!(status_page::Control, bell);
/// Bytes mapped; the kernel rounds them up to whole pages.
const MAPPED: usize = AT + size_of::<u64>();

/// Adds 1 to the word and wakes its sleepers. The file's size is sealed, so the mapping cannot
/// fault.
pub fn ring(status_page: &File) -> io::Result<()> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, wherever the kernel likes.
    let base = unsafe { mmap(null_mut(), MAPPED, access, MapFlags::SHARED, status_page, 0) }?;
    // SAFETY: mapped above and aligned to 4 bytes; other processes access it only with atomic
    // operations. The reference ends before the mapping.
    let word = unsafe { AtomicU32::from_ptr(base.byte_add(AT).cast()) };
    word.fetch_add(1, Ordering::SeqCst);
    let woken = futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs());
    // SAFETY: the mapping made above, which no other code knows.
    unsafe { munmap(base, MAPPED) }?;
    woken?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;

    #[test]
    fn a_sleeper_on_the_status_page_is_woken() {
        let forged = Forged::status_page();
        let file = File::from(forged.descriptor());
        let sleeper = {
            let file = file.try_clone().unwrap();
            std::thread::spawn(move || sleep_on(&file))
        };
        // Ring until one ring finds it asleep, or it finds that the word has changed.
        while !sleeper.is_finished() {
            ring(&file).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        sleeper.join().unwrap();
    }

    fn sleep_on(status_page: &File) {
        // SAFETY: as in `ring`.
        let base = unsafe {
            mmap(
                null_mut(),
                MAPPED,
                ProtFlags::READ,
                MapFlags::SHARED,
                status_page,
                0,
            )
            .unwrap()
        };
        // SAFETY: as in `ring`; only read here.
        let word = unsafe { AtomicU32::from_ptr(base.byte_add(AT).cast()) };
        let seen = word.load(Ordering::SeqCst);
        // A spurious wake-up ends the test as well.
        let _ = futex::wait(word, futex::Flags::empty(), seen, None);
        // SAFETY: as in `ring`.
        unsafe { munmap(base, MAPPED).unwrap() };
    }
}
