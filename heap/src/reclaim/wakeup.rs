//! How the purge thread sleeps and is woken: no wake-up is lost, and none costs a system call while
//! the thread is awake.
//!
//! Whoever has work publishes it first, then rings. The thread says that it sleeps, then looks for
//! work once more, then sleeps. A full barrier stands between the two steps on either side, so one
//! of them sees the other.
//!
//! Rings go to a *shared* word, which stands on the status page where there is one: an observer in
//! another process rings by adding to it and waking its sleepers. The thread reads the word before
//! it says that it sleeps, and the kernel puts it to sleep only while the word still has that
//! value. A second word is the process's own. The thread sleeps on it, and only for a bounded time,
//! after the shared one woke it in vain: strangers may do that as often as they like.
//!
//! `state` is private. What strangers write to the shared word ends a sleep early, and changes
//! nothing else.
//!
//! Freed bytes are such work ([`Freed`]). A thread that frees adds its bytes, then reads from how
//! many on the purge thread is due. The purge thread sets that anew, then, before it sleeps, reads
//! the bytes. Again a full barrier stands between the two steps on either side.
//!
//! `testing/wakeup_models.rs` and `testing/freed_models.rs` have the loom models.

use crate::base::policy::WAKE_BYTES;
use crate::base::sync::{AtomicU32, AtomicUsize, Ordering, fence, full_barrier_after_rmw};
use crate::os::futex::Woken;

/// At work, or there is no thread: no ring is needed.
const AWAKE: u32 = 0;
/// Asleep; it wakes by itself within the decay time.
const DOZING: u32 = 1;
/// Asleep until it is woken.
const PARKED: u32 = 2;
/// Asleep on the private word.
const DEAF: u32 = 3;

/// Which word a sleeper sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ear {
    /// The word that other processes may ring by.
    Shared,
    /// The process's own.
    Private,
}

/// The two words, and the kernel's part.
pub trait Words {
    /// What the word says now.
    fn read(&self, ear: Ear) -> u32;

    /// Sleeps while the word says `seen`.
    fn wait(&self, ear: Ear, seen: u32, ms: Option<u64>) -> Woken;

    /// Changes both words and wakes who sleeps on this one.
    fn ring(&self, ear: Ear);
}

/// How the thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It has a round or a purge of its own to do, this many ms from now.
    Doze(u64),
    /// Nothing of its own is planned. An observer may want figures this many ms from now.
    Park(Option<u64>),
    /// It was woken in vain: for this many ms no observer wakes it.
    Deaf(u64),
}

/// Whether the work can wait for what the thread has planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It can: only a parked thread is woken.
    Soon,
    /// It cannot.
    Now,
}

/// A place where one thread sleeps.
pub struct Bell<W> {
    state: AtomicU32,
    /// What it sleeps on.
    pub words: W,
}

impl<W: Words> Bell<W> {
    /// Wakes the thread if it sleeps. The work has been published. Safe everywhere: takes no lock,
    /// makes at most one system call, or two if the thread is deaf.
    #[inline]
    pub fn ring(&self, urgency: Urgency) {
        fence(Ordering::SeqCst);
        let state = self.state.load(Ordering::Relaxed);
        let is_due = match urgency {
            Urgency::Soon => state == PARKED,
            Urgency::Now => state != AWAKE,
        };
        if is_due {
            self.wake(state);
        }
    }

    /// One of several wins; the others find the thread awake.
    #[cold]
    fn wake(&self, state: u32) {
        let exchange =
            self.state
                .compare_exchange(state, AWAKE, Ordering::SeqCst, Ordering::Relaxed);
        if exchange.is_ok() {
            self.words.ring(match state {
                DEAF => Ear::Private,
                _ => Ear::Shared,
            });
        }
    }

    /// Sleeps, unless `has_work`, which is asked once everybody can see that the thread sleeps. For
    /// the one thread.
    pub fn rest(&self, rest: Rest, has_work: impl FnOnce() -> bool) -> Woken {
        let (state, ear, ms) = match rest {
            Rest::Doze(ms) => (DOZING, Ear::Shared, Some(ms)),
            Rest::Park(ms) => (PARKED, Ear::Shared, ms),
            Rest::Deaf(ms) => (DEAF, Ear::Private, Some(ms)),
        };
        let seen = self.words.read(ear);
        self.state.store(state, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let woken = match has_work() {
            true => Woken::Early,
            false => self.words.wait(ear, seen, ms),
        };
        self.state.store(AWAKE, Ordering::SeqCst);
        woken
    }

    /// The thread is awake.
    #[cfg(all(test, loom))]
    pub fn of(words: W) -> Bell<W> {
        Bell {
            state: AtomicU32::new(AWAKE),
            words,
        }
    }

    /// There is no thread to wake.
    pub fn silence(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
    }
}

/// How many bytes went back past magazines, and from how many on the purge thread is due.
pub struct Freed {
    /// Bytes that went back past a magazine so far; wraps.
    bytes: AtomicUsize,
    /// With more bytes than this, the purge thread is due; wraps.
    most: AtomicUsize,
}

/// Whether `bytes` are more than `most`. Both wrap.
fn exceeds(bytes: usize, most: usize) -> bool {
    bytes.wrapping_sub(most).cast_signed() > 0
}

impl Freed {
    /// Nothing freed yet.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Freed {
        Freed {
            bytes: AtomicUsize::new(0),
            most: AtomicUsize::new(WAKE_BYTES),
        }
    }

    /// Nothing freed yet.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Freed {
        Freed {
            bytes: AtomicUsize::new(0),
            most: AtomicUsize::new(WAKE_BYTES),
        }
    }

    /// Notes that `bytes` went back past a magazine. True if the purge thread is due by these
    /// bytes, and the caller is to ring for it.
    #[inline]
    pub fn note(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        full_barrier_after_rmw();
        let most = self.most.load(Ordering::Relaxed);
        exceeds(before.wrapping_add(bytes), most) && !exceeds(before, most)
    }

    /// The purge thread is due, however little is freed.
    pub fn want(&self) {
        let most = self.bytes().wrapping_sub(1);
        self.most.store(most, Ordering::Relaxed);
    }

    /// Whether the purge thread is due.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        exceeds(self.bytes(), self.most.load(Ordering::Relaxed))
    }

    /// The bytes so far; wraps.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A thread deals with all that was freed so far, or gives up on it: as many bytes as returned.
    pub fn attend(&self) -> usize {
        let bytes = self.bytes();
        self.most
            .store(bytes.wrapping_add(WAKE_BYTES), Ordering::Relaxed);
        bytes
    }
}

#[cfg(not(loom))]
pub use machine::Pair;

#[cfg(not(loom))]
mod machine {
    use super::{AWAKE, AtomicU32, Bell, Ear, Words};
    use crate::base::sync::plain;
    use crate::base::sync::plain::Ordering;
    use crate::os::futex::{self, Woken};
    use crate::os::shared;
    use core::ptr::null_mut;

    /// The machine's words: the status page's, where there is a status page, and one of the heap's
    /// own.
    pub struct Pair {
        shared: plain::AtomicPtr<plain::AtomicU32>,
        own: plain::AtomicU32,
    }

    impl Bell<Pair> {
        /// The thread is awake.
        pub const fn new() -> Bell<Pair> {
            Bell {
                state: AtomicU32::new(AWAKE),
                words: Pair {
                    shared: plain::AtomicPtr::new(null_mut()),
                    own: plain::AtomicU32::new(0),
                },
            }
        }
    }

    impl Pair {
        /// From now on this is the shared word; `None`: there is none. No thread sleeps meanwhile.
        pub fn share(&self, word: Option<&'static plain::AtomicU32>) {
            let word = word.map_or(null_mut(), |word| core::ptr::from_ref(word).cast_mut());
            self.shared.store(word, Ordering::Release);
        }

        fn word(&self, ear: Ear) -> &plain::AtomicU32 {
            // SAFETY: null, or the word of a status page that stays mapped as long as a thread may
            // sleep or ring.
            match unsafe { self.shared.load(Ordering::Acquire).as_ref() } {
                Some(word) if ear == Ear::Shared => word,
                _ => &self.own,
            }
        }
    }

    impl Words for Pair {
        fn read(&self, ear: Ear) -> u32 {
            self.word(ear).load(Ordering::SeqCst)
        }

        fn wait(&self, ear: Ear, seen: u32, ms: Option<u64>) -> Woken {
            futex::wait(self.word(ear), seen, ms)
        }

        fn ring(&self, ear: Ear) {
            // The child of a raw clone has a copy of the state, but the sleeper is its parent's.
            if !shared::is_mine() {
                return;
            }
            self.own.fetch_add(1, Ordering::SeqCst);
            if !core::ptr::eq(self.word(Ear::Shared), &self.own) {
                self.word(Ear::Shared).fetch_add(1, Ordering::SeqCst);
            }
            futex::wake(self.word(ear));
        }
    }
}
