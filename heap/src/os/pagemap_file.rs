//! A descriptor of the process's own `/proc/self/pagemap` that can be trusted, or none.
//!
//! What can go wrong with a kept descriptor, and the remedies:
//!
//! - After `fork` or a raw `clone` it describes the parent, for which a page that the child wrote
//!   may be untouched. Its number is therefore kept in a page with `MADV_WIPEONFORK`: a child that
//!   has its own memory finds zeros there, and opens a descriptor of its own.
//! - Programs close numbers that they do not know, and open other files under them. So device and
//!   inode are compared before every use and after it: every `pagemap` file of every process has an
//!   inode of its own, which no other file gets while ours is open. A number that is no longer ours
//!   is forgotten, never closed.
//! - A child that shares the memory but not the descriptors (`vfork`) may have closed its copy. It
//!   must not replace the parent's number, so only the process that opened the file opens it again.
//! - There may be no `/proc`, no permission to open it, no free descriptor, or a sandbox that kills
//!   the process for asking.

use super::file::{self, FileIdentity};
use super::pagemap::{self, Way};
use super::process;
use super::{Answers, Populated, Unknown};
use crate::base::sync::plain::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::ffi::CStr;
use core::ptr::{NonNull, null_mut};

/// The state of the descriptor. All zero in a new page, and in a child after fork.
#[repr(C)]
struct Kept {
    /// [`NONE`], [`OPENING`], or the number plus [`FIRST`]. Release: `device`, `inode` and `owner`
    /// were written before.
    number: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    /// The process that opened it.
    owner: AtomicU32,
    /// How often this process opened one, or tried to.
    attempts: AtomicU32,
    /// How it is asked: 1 by reading, else by `PAGEMAP_SCAN`.
    reads: AtomicBool,
}

const NONE: u64 = 0;
const OPENING: u64 = 1;
const FIRST: u64 = 2;

/// How often a process opens the file before it gives up: the program closes it again and again, or
/// it cannot be opened.
const MOST_ATTEMPTS: u32 = 64;

const PATH: &CStr = c"/proc/self/pagemap";

static KEPT: AtomicPtr<Kept> = AtomicPtr::new(null_mut());
static ALLOWED: AtomicBool = AtomicBool::new(true);

/// The number last opened, plus [`FIRST`], and its file; unlike [`Kept`], a child finds them.
#[unsafe(link_section = "neap_fork")]
static LAST: AtomicU64 = AtomicU64::new(NONE);
static LAST_DEVICE: AtomicU64 = AtomicU64::new(0);
static LAST_INODE: AtomicU64 = AtomicU64::new(0);

/// Closes the parent's descriptor, in a child that `fork` made, if its number still is the parent's
/// pagemap: or every generation would inherit one more.
pub fn close_inherited() {
    if LAST.load(Ordering::Relaxed) == NONE {
        return;
    }
    let number = LAST.swap(NONE, Ordering::Relaxed);
    let parents = FileIdentity {
        device: LAST_DEVICE.load(Ordering::Relaxed),
        inode: LAST_INODE.load(Ordering::Relaxed),
    };
    if number >= FIRST && file::file_identity((number - FIRST) as i32) == Some(parents) {
        file::close((number - FIRST) as i32);
    }
}

/// Never asks again, in this process and its future children, because the program may have
/// forbidden itself the system call.
pub fn forbid() {
    ALLOWED.store(false, Ordering::Relaxed);
}

/// A descriptor that was proven to be this process's pagemap just now.
#[derive(Clone, Copy)]
pub(super) struct Proven {
    pub(super) number: i32,
    pub(super) way: Way,
    kept: &'static Kept,
}

impl Proven {
    /// Whether it is still our pagemap, and so was when the query was made.
    pub(super) fn still_holds(&self) -> bool {
        self.kept.holds(file::file_identity(self.number))
    }
}

/// The process's pagemap, opened at the first need. `None` when there is none. An OS page
/// has `page` bytes.
pub(super) fn proven(page: usize) -> Option<Proven> {
    if !ALLOWED.load(Ordering::Relaxed) {
        return None;
    }
    let kept = kept(page)?;
    match kept.number.load(Ordering::Acquire) {
        NONE => kept.open(page),
        OPENING if kept.owner_is_gone() => {
            kept.forget(OPENING);
            None
        }
        OPENING => None,
        number if kept.holds(file::file_identity((number - FIRST) as i32)) => {
            Some(kept.proven((number - FIRST) as i32))
        }
        number => {
            let mine = kept.owner.load(Ordering::Relaxed) == process::process_id() as u32;
            if !mine && !kept.owner_is_gone() {
                return None;
            }
            kept.forget(number);
            kept.open(page)
        }
    }
}

/// Opens the process's pagemap, if there is one, so that the first query need not.
pub fn prepare(page: usize) {
    let _ = proven(page);
}

/// How questions are answered.
pub(super) fn answers(page: usize) -> Answers {
    match proven(page) {
        Some(Proven { way: Way::Read, .. }) => Answers::Pages,
        _ => Answers::Runs,
    }
}

/// Calls `visit` with every run of populated pages of a range, in the order of addresses. They
/// count only if the result does.
///
/// # Safety
/// - The range is mapped by this process, and page-aligned.
pub(super) unsafe fn populated(
    start: NonNull<u8>,
    bytes: usize,
    page: usize,
    mut visit: impl FnMut(Populated),
) -> Result<(), Unknown> {
    let from = start.as_ptr().addr();
    let proven = proven(page).ok_or(Unknown { from })?;
    let answered = pagemap::ask(
        proven.number,
        proven.way,
        from,
        from + bytes,
        page,
        &mut visit,
    );
    // Another thread may have put another file there during the query, and taken it away again.
    // Then none of the answer counts, not even its begin.
    if !proven.still_holds() {
        return Err(Unknown { from });
    }
    answered
}

impl Kept {
    fn holds(&self, found: Option<FileIdentity>) -> bool {
        found.is_some_and(|found| {
            found.device == self.device.load(Ordering::Relaxed)
                && found.inode == self.inode.load(Ordering::Relaxed)
        })
    }

    fn proven(&'static self, number: i32) -> Proven {
        let way = if self.reads.load(Ordering::Relaxed) {
            Way::Read
        } else {
            Way::Scan
        };
        Proven {
            number,
            way,
            kept: self,
        }
    }

    /// Whether the process that opened the file has ended: a child that shared our memory.
    fn owner_is_gone(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed) as i32;
        owner != 0 && owner != process::process_id() && !process::process_exists(owner)
    }

    /// Gives up a number that is no longer ours, unless another thread was first.
    fn forget(&self, number: u64) {
        let _ = self
            .number
            .compare_exchange(number, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Opens the file, if no other thread does, and if it has not failed too often.
    fn open(&'static self, page: usize) -> Option<Proven> {
        if self.attempts.load(Ordering::Relaxed) >= MOST_ATTEMPTS {
            return None;
        }
        let me = process::process_id() as u32;
        self.number
            .compare_exchange(NONE, OPENING, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        self.owner.store(me, Ordering::Relaxed);
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let opened = open_pagemap().filter(|&(number, _)| self.accepts(number, page));
        if let Some((number, identity)) = opened {
            self.device.store(identity.device, Ordering::Relaxed);
            self.inode.store(identity.inode, Ordering::Relaxed);
            LAST_DEVICE.store(identity.device, Ordering::Relaxed);
            LAST_INODE.store(identity.inode, Ordering::Relaxed);
            LAST.store(number as u64 + FIRST, Ordering::Relaxed);
        }
        let number = opened.map_or(NONE, |(number, _)| number as u64 + FIRST);
        self.number.store(number, Ordering::Release);
        opened.map(|(number, _)| self.proven(number))
    }

    /// Whether the file just opened tells the truth about this page, which was written, and the
    /// next, which never was. Closes it if not.
    fn accepts(&self, number: i32, page: usize) -> bool {
        let way = pagemap::truthful_way(number, core::ptr::from_ref(self).addr(), page);
        self.reads.store(way == Some(Way::Read), Ordering::Relaxed);
        if way.is_none() {
            file::close(number);
        }
        way.is_some()
    }
}

/// Opens the process's pagemap at a number out of the way of the program's own.
fn open_pagemap() -> Option<(i32, FileIdentity)> {
    let number = file::move_up(file::open_read(PATH)?)?;
    // By its name as well, because another thread may already have replaced it; it is not ours to
    // close then.
    let identity =
        file::file_identity(number).filter(|&found| file::path_identity(PATH) == Some(found))?;
    if file::is_proc(number) {
        return Some((number, identity));
    }
    file::close(number);
    None
}

/// The page that fork wipes, and behind it one that no code touches; `None` where the kernel cannot
/// (before Linux 4.14).
fn kept(page: usize) -> Option<&'static Kept> {
    // SAFETY: null, or a mapping made below and never unmapped; zeros are a valid `Kept`.
    match unsafe { KEPT.load(Ordering::Acquire).as_ref() } {
        Some(kept) => Some(kept),
        None => make_kept(page),
    }
}

#[cold]
fn make_kept(page: usize) -> Option<&'static Kept> {
    let Some(pages) = super::mapping::map_wiped(2 * page) else {
        forbid();
        return None;
    };
    let pages: NonNull<Kept> = pages.cast();
    let made = KEPT.compare_exchange(
        null_mut(),
        pages.as_ptr(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    let kept = match made {
        Ok(_) => pages.as_ptr(),
        Err(earlier) => {
            // SAFETY: mapped just above and shown to no other thread.
            unsafe { super::mapping::unmap(pages.as_ptr().cast(), 2 * page) };
            earlier
        }
    };
    // SAFETY: a mapping that is never unmapped; zeros are a valid `Kept`.
    unsafe { kept.as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::Os;
    use crate::os::child::{Limit, succeeds};
    use crate::os::errno;
    use crate::os::linux::Linux;

    fn page() -> usize {
        Linux.page_bytes()
    }

    /// Each in a child, because the state is the process's.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        succeeds(Limit::None, work)
    }

    #[test]
    fn a_descriptor_is_kept_high_and_closed_by_exec() {
        assert!(in_child(|| {
            let first = proven(page()).unwrap().number;
            // SAFETY: plain numbers.
            let flags = unsafe { libc::fcntl(first, libc::F_GETFD) };
            first >= file::ABOVE[0]
                && flags & libc::FD_CLOEXEC != 0
                && proven(page()).unwrap().number == first
        }));
    }

    #[test]
    fn errno_survives() {
        assert!(in_child(|| {
            errno::set(77);
            proven(page()).is_some() && errno::get() == 77
        }));
    }

    #[test]
    fn a_closed_descriptor_is_opened_again_and_not_for_ever() {
        assert!(in_child(|| {
            for _ in 0..MOST_ATTEMPTS {
                file::close(proven(page()).unwrap().number);
            }
            proven(page()).is_none()
        }));
    }

    #[test]
    fn an_answer_of_a_descriptor_replaced_meanwhile_does_not_count() {
        assert!(in_child(|| {
            let first = proven(page()).unwrap();
            assert!(first.still_holds());
            file::close(first.number);
            !first.still_holds()
        }));
    }

    #[test]
    fn a_replaced_descriptor_is_left_alone() {
        assert!(in_child(|| {
            let first = proven(page()).unwrap().number;
            let other = file::open_read(c"/dev/null").unwrap();
            // SAFETY: plain numbers.
            unsafe { libc::dup2(other, first) };
            let second = proven(page()).unwrap().number;
            // Still open on what the program put there.
            second != first && file::file_identity(first) == file::file_identity(other)
        }));
    }

    #[test]
    fn a_child_opens_its_own() {
        assert!(in_child(|| {
            let parents = proven(page()).unwrap().number;
            let identity = file::file_identity(parents);
            in_child(|| {
                let own = proven(page()).unwrap().number;
                // The parent's is still open here, and not taken for ours.
                own != parents
                    && file::file_identity(parents) == identity
                    && file::file_identity(own) != identity
            })
        }));
    }

    #[test]
    fn a_child_of_fork_closes_the_parents() {
        assert!(in_child(|| {
            let parents = proven(page()).unwrap().number;
            in_child(|| {
                close_inherited();
                file::file_identity(parents).is_none()
            }) && file::file_identity(parents).is_some()
        }));
    }

    #[test]
    fn a_forbidden_file_is_not_opened() {
        assert!(in_child(|| {
            forbid();
            proven(page()).is_none() && KEPT.load(Ordering::Relaxed).is_null()
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
            proven(page()).is_none()
        }));
    }
}
