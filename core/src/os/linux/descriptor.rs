//! A descriptor of the process's own `/proc/self/pagemap` that can be trusted, or none.
//!
//! What goes wrong with a kept descriptor, and what stands against it:
//!
//! - After `fork` or a raw `clone` it describes the parent, for which a page that the child wrote may be
//!   untouched. Its number therefore stands in a page of its own with `MADV_WIPEONFORK`: a child
//!   that has its own memory finds zeros there, and opens its own.
//! - Programs close numbers that they do not know, and open other files under them. So device and inode
//!   are compared before every use and after it: every `pagemap` file of every process has an inode of its own, which
//!   no other file gets while ours is open. A number that is not ours any more is forgotten, never closed.
//! - A child that shares the memory but not the descriptors (`vfork`) may have closed its copy. It
//!   must not replace the parent's number, so only the process that opened opens again.
//! - There may be no `/proc`, no right to open it, no free number, or a sandbox that kills who asks.

use super::super::thread::{self, FileIdentity};
use crate::base::sync::plain::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::ffi::CStr;
use core::ptr::{NonNull, null_mut};

/// What is known of the descriptor. All zero in a new page, and in a child after fork.
#[repr(C)]
struct Kept {
    /// [`NONE`], [`OPENING`], or the number plus [`FIRST`]. Release: `device`, `inode` and `owner` were written before.
    number: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    /// The process that opened it.
    owner: AtomicU32,
    /// How often this process opened one, or tried to.
    attempts: AtomicU32,
    /// Whether the kernel told this process that it knows no `PAGEMAP_SCAN`.
    cannot_scan: AtomicBool,
}

const NONE: u64 = 0;
const OPENING: u64 = 1;
const FIRST: u64 = 2;

/// How often a process opens the file before it gives up: somebody closes it again and again, or it cannot
/// be opened.
const MOST_ATTEMPTS: u32 = 64;

/// The numbers that ours shall lie above, best first: programs use low ones, shells up to 255, and many
/// processes may have only 1,024.
const ABOVE: [i32; 3] = [1000, 500, 200];

const PATH: &CStr = c"/proc/self/pagemap";

static KEPT: AtomicPtr<Kept> = AtomicPtr::new(null_mut());
static ALLOWED: AtomicBool = AtomicBool::new(true);

/// Never asks again, in this process and its children to come: no system call that the program may have
/// forbidden itself.
pub fn forbid() {
    ALLOWED.store(false, Ordering::Relaxed);
}

/// A descriptor that was proven to be this process's pagemap just now.
#[derive(Clone, Copy)]
pub(super) struct Proven {
    pub(super) number: i32,
    kept: &'static Kept,
}

impl Proven {
    /// Whether the kernel may know `PAGEMAP_SCAN`.
    pub(super) fn can_scan(&self) -> bool {
        !self.kept.cannot_scan.load(Ordering::Relaxed)
    }

    /// Whether it is our pagemap still, and so was it when it was asked.
    pub(super) fn still_holds(&self) -> bool {
        self.kept.holds(thread::file_identity(self.number))
    }

    /// The kernel knows no `PAGEMAP_SCAN`.
    pub(super) fn note_no_scan(&self) {
        self.kept.cannot_scan.store(true, Ordering::Relaxed);
    }
}

/// The process's pagemap, opened at the first need. `None` when there is none to be had.
pub(super) fn proven() -> Option<Proven> {
    if !ALLOWED.load(Ordering::Relaxed) {
        return None;
    }
    let kept = kept()?;
    let number = kept.number.load(Ordering::Acquire);
    if number >= FIRST {
        let number = (number - FIRST) as i32;
        if kept.holds(thread::file_identity(number)) {
            return Some(Proven { number, kept });
        }
        if !kept.forget(number) {
            return None;
        }
    }
    kept.open()
}

impl Kept {
    fn holds(&self, found: Option<FileIdentity>) -> bool {
        found.is_some_and(|found| {
            found.device == self.device.load(Ordering::Relaxed)
                && found.inode == self.inode.load(Ordering::Relaxed)
        })
    }

    /// Gives up a number that is ours no more. False in a process that did not open it.
    fn forget(&self, number: i32) -> bool {
        if self.owner.load(Ordering::Relaxed) != thread::process_id() as u32 {
            return false;
        }
        let lost = number as u64 + FIRST;
        // If another thread was first, it has opened a new one by now, or will.
        let _ = self
            .number
            .compare_exchange(lost, NONE, Ordering::Relaxed, Ordering::Relaxed);
        true
    }

    /// Opens the file, if no other thread does, and if it has not failed too often.
    fn open(&'static self) -> Option<Proven> {
        if self.attempts.load(Ordering::Relaxed) >= MOST_ATTEMPTS {
            return None;
        }
        self.number
            .compare_exchange(NONE, OPENING, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let opened = open_pagemap();
        if let Some((_, identity)) = opened {
            self.device.store(identity.device, Ordering::Relaxed);
            self.inode.store(identity.inode, Ordering::Relaxed);
            self.owner
                .store(thread::process_id() as u32, Ordering::Relaxed);
        }
        let number = opened.map_or(NONE, |(number, _)| number as u64 + FIRST);
        self.number.store(number, Ordering::Release);
        let (number, _) = opened?;
        Some(Proven { number, kept: self })
    }
}

/// Opens the process's pagemap at a high number.
fn open_pagemap() -> Option<(i32, FileIdentity)> {
    let low = thread::open_read(PATH)?;
    let high = ABOVE
        .into_iter()
        .find_map(|least| thread::duplicate_above(low, least));
    if high.is_some() {
        thread::close(low);
    }
    let number = high.unwrap_or(low);
    // By its name too, for another thread may have replaced it already; it is not ours to close then.
    let identity = thread::file_identity(number)
        .filter(|&found| thread::path_identity(PATH) == Some(found))?;
    if thread::is_proc(number) {
        return Some((number, identity));
    }
    thread::close(number);
    None
}

/// The page that fork wipes; `None` where the kernel cannot (before Linux 4.14).
fn kept() -> Option<&'static Kept> {
    // SAFETY: null, or a mapping made below and never unmapped; zeros are a valid `Kept`.
    match unsafe { KEPT.load(Ordering::Acquire).as_ref() } {
        Some(kept) => Some(kept),
        None => make_kept(),
    }
}

#[cold]
fn make_kept() -> Option<&'static Kept> {
    let page: NonNull<Kept> = super::map_wiped(size_of::<Kept>())?.cast();
    let made = KEPT.compare_exchange(
        null_mut(),
        page.as_ptr(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    let kept = match made {
        Ok(_) => page.as_ptr(),
        Err(earlier) => {
            // SAFETY: mapped just above and shown to nobody.
            unsafe { super::unmap(page.as_ptr().cast(), size_of::<Kept>()) };
            earlier
        }
    };
    // SAFETY: a mapping that is never unmapped; zeros are a valid `Kept`.
    unsafe { kept.as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::child::{Limit, succeeds};
    use crate::os::errno;

    /// In a child each, for the state is the process's.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        succeeds(Limit::None, work)
    }

    #[test]
    fn a_descriptor_is_kept_high_and_closed_by_exec() {
        assert!(in_child(|| {
            let first = proven().unwrap().number;
            // SAFETY: plain numbers.
            let flags = unsafe { libc::fcntl(first, libc::F_GETFD) };
            first >= 200 && flags & libc::FD_CLOEXEC != 0 && proven().unwrap().number == first
        }));
    }

    #[test]
    fn errno_survives() {
        assert!(in_child(|| {
            errno::set(77);
            proven().is_some() && errno::get() == 77
        }));
    }

    #[test]
    fn a_closed_descriptor_is_opened_again_and_not_for_ever() {
        assert!(in_child(|| {
            for _ in 0..MOST_ATTEMPTS {
                thread::close(proven().unwrap().number);
            }
            proven().is_none()
        }));
    }

    #[test]
    fn an_answer_of_a_descriptor_replaced_meanwhile_does_not_count() {
        assert!(in_child(|| {
            let first = proven().unwrap();
            assert!(first.still_holds());
            thread::close(first.number);
            !first.still_holds()
        }));
    }

    #[test]
    fn a_replaced_descriptor_is_left_alone() {
        assert!(in_child(|| {
            let first = proven().unwrap().number;
            let other = thread::open_read(c"/dev/null").unwrap();
            // SAFETY: plain numbers.
            unsafe { libc::dup2(other, first) };
            let second = proven().unwrap().number;
            // Still open on what the program put there.
            second != first && thread::file_identity(first) == thread::file_identity(other)
        }));
    }

    #[test]
    fn a_child_opens_its_own() {
        assert!(in_child(|| {
            let parents = proven().unwrap().number;
            let identity = thread::file_identity(parents);
            in_child(|| {
                let own = proven().unwrap().number;
                // The parent's is still open here, and not taken for ours.
                own != parents
                    && thread::file_identity(parents) == identity
                    && thread::file_identity(own) != identity
            })
        }));
    }

    #[test]
    fn who_is_forbidden_does_not_open() {
        assert!(in_child(|| {
            forbid();
            proven().is_none() && KEPT.load(Ordering::Relaxed).is_null()
        }));
    }

    #[test]
    fn no_free_number_is_no_descriptor() {
        assert!(in_child(|| {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: a valid buffer; only this child is limited.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) };
            proven().is_none()
        }));
    }
}
