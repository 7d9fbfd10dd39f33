//! The only connection from the heap to its instruments: sampling, counting, checking, and the
//! status page for observers in other processes.
//!
//! The instruments are a crate of their own, which [installs](install) itself before the program
//! begins. Without them the heap works, and the default bodies of [`Instruments`] say what it does
//! then. The heap calls them on slow paths only. What every slow path checks is kept here in words:
//! whether the process has no status page of its own yet, which [requests](Requests) observers
//! made, and whether a block may have been sampled.

use crate::base::sync::plain::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use crate::cache::heap::Found;
use crate::cache::misuse::Call;
use crate::cache::thread_cache::Blocks;
use crate::cache::thread_cache::Cache;
use crate::os::lock::Lock;
use crate::os::shared;
use crate::pages::SliceRef;
use crate::slab::class::Class;
use core::mem::offset_of;
use core::ptr::{self, null_mut};
use neap_shared::control::Value;
use neap_shared::status_page::{CONTROL_AT, Control, ThreadState};

/// What the heap reports to its instruments and requests from them. The default bodies are for a
/// heap without instruments.
pub trait Instruments: Sync {
    /// Puts an option into force that belongs to the instruments.
    ///
    /// # Safety
    /// - The process has one thread.
    unsafe fn set_option(&self, _name: &str, _value: Value<'_>) {}

    /// The process begins; all options are set. The caller holds no lock.
    fn begin(&self) {}

    /// Sampling is on, and the magazine of `class` gave no block of `size` bytes: a
    /// [sampled](crate::cache::heap::Heap::take_sampled) block, or null when out of memory; `None`
    /// if the next one is not to be sampled.
    fn sample(&self, _cache: &Cache, _size: usize, _class: Class) -> Option<*mut u8> {
        None
    }

    /// Some allocations are guarded, and the slow path allocates `size` bytes at a multiple of
    /// `align`, which a slab of `class` would serve: a guarded block; `None` if this one is not to
    /// be guarded.
    fn guard(&self, _cache: &Cache, _size: usize, _align: usize, _class: Class) -> Option<*mut u8> {
        None
    }

    /// The bytes that were requested of the guarded block at `address`. Aborts if none starts
    /// there, or if it is free.
    fn guarded_bytes(&self, _call: Call, _address: usize) -> usize {
        0
    }

    /// Takes the guarded block at `address` back. Aborts if none starts there, if it is free, or if
    /// the program wrote beside it.
    fn guarded_freed(&self, _address: usize) {}

    /// A block of `usable` bytes was made in the span at `place`, for a request of `size` bytes. No
    /// other thread has it yet.
    fn large_made(&self, _place: &SliceRef<'_>, _size: usize, _usable: usize) {}

    /// A block that may have been sampled is freed: the large one whose span begins at `address`,
    /// or the one that starts there in a slab of sampled blocks.
    fn sampled_freed(&self, _address: usize) {}

    /// In the counting mode: a request of `size` bytes, which a slab of `class` serves, or none.
    fn requested(&self, _size: usize, _class: Option<Class>) {}

    /// In the checking mode: holds back the block that `found` describes, which the program freed.
    /// False if the caller is to take it back now. Aborts if it was freed before.
    fn hold(&self, _address: usize, _found: &Found) -> bool {
        false
    }

    /// In hardened mode: holds freed blocks back, which have canaries, and takes the oldest ones
    /// back instead. False if the caller is to take them back now.
    ///
    /// # Safety
    /// - The program freed these blocks, and nothing uses them any more.
    unsafe fn hold_back(&self, _blocks: &Blocks) -> bool {
        false
    }

    /// In the checking mode: whether a block was freed and is not taken back yet.
    fn holds(&self, _address: usize) -> bool {
        false
    }

    /// Whether a process without a status page is to get one, however little it allocates.
    fn wants_status_page(&self) -> bool {
        false
    }

    /// Makes the process's own status page. The caller holds no lock, and the process is
    /// [its own](crate::reclaim::thread::may_be_own_process).
    fn make_status_page(&self) {}

    /// An allocating thread found a request of an observer. It holds no lock.
    fn answer_on_the_way(&self) {}

    /// The purge thread answers observers, if that is due. True if there was something to do. It
    /// holds no lock.
    fn answer_due(&self) -> bool {
        false
    }

    /// Time until [`Instruments::answer_due`] is due, in ms; `None` while no observer made a
    /// request or watches.
    fn due_in_ms(&self) -> Option<u64> {
        None
    }

    /// Whether a thread answers observers, and why not.
    fn note_thread(&self, _state: ThreadState) {}

    /// The return addresses of the calls that led here, innermost first. `None` if one of them is a
    /// signal handler's, or if the stack has fewer than `room` bytes left, or if the stack cannot
    /// be unwound.
    fn callers<'f>(&self, _frames: &'f mut [u64], _room: usize) -> Option<&'f [u64]> {
        None
    }

    /// The instruments' locks, in [their order](crate::os::lock_order). All of them stand before
    /// the heap's.
    fn locks(&self) -> &'static [&'static Lock] {
        &[]
    }

    /// In the child of the C library's fork, whose heap is whole again.
    fn after_fork_in_child(&self) {}
}

/// There are none.
struct Absent;

impl Instruments for Absent {}

#[unsafe(link_section = "neap_fork")]
static INSTALLED: AtomicPtr<&'static dyn Instruments> = AtomicPtr::new(null_mut());

/// Installs the instruments, for good. Before the process [begins](crate::init::begin).
pub fn install(instruments: &'static &'static dyn Instruments) {
    let instruments = ptr::from_ref(instruments).cast_mut();
    INSTALLED.store(instruments, Ordering::Release);
}

/// The instruments.
pub fn instruments() -> &'static dyn Instruments {
    // SAFETY: null, or a reference that `install` got.
    match unsafe { INSTALLED.load(Ordering::Acquire).as_ref() } {
        Some(instruments) => *instruments,
        None => &Absent,
    }
}

/// Whether sampling was ever on, and so large blocks may have samples.
static EVER_SAMPLED: AtomicBool = AtomicBool::new(false);

/// From now on the heap reports large blocks to the instruments.
pub fn begin_sampling() {
    EVER_SAMPLED.store(true, Ordering::Relaxed);
}

/// Whether large blocks may have samples.
#[inline]
pub(crate) fn was_sampled() -> bool {
    EVER_SAMPLED.load(Ordering::Relaxed)
}

/// See [`Instruments::large_made`].
#[inline]
pub fn large_made(place: &SliceRef<'_>, size: usize, usable: usize) {
    if was_sampled() {
        instruments().large_made(place, size, usable);
    }
}

/// The large block at `place` is freed.
#[inline]
pub fn large_freed(place: &SliceRef<'_>) {
    if was_sampled() {
        sampled_freed(place.slice_base());
    }
}

/// See [`Instruments::sampled_freed`].
pub fn sampled_freed(address: usize) {
    instruments().sampled_freed(address);
}

/// How many kinds of requests there are.
pub const REQUEST_WORDS: usize = 4;

/// The requests of observers: words of the status page, and which of them were considered.
#[derive(Debug)]
pub struct Requests {
    /// The status page's address; null without a status page.
    status_page: AtomicPtr<u8>,
    /// The process has no status page yet, and gets one later.
    is_absent: AtomicBool,
    /// The last requests considered, in the order of [`Requests::asked`].
    seen: [AtomicU64; REQUEST_WORDS],
}

/// See [`Requests`].
#[unsafe(link_section = "neap_fork")]
pub static REQUESTS: Requests = Requests {
    status_page: AtomicPtr::new(null_mut()),
    is_absent: AtomicBool::new(false),
    seen: [const { AtomicU64::new(0) }; REQUEST_WORDS],
};

impl Requests {
    /// The status page's address; null without a status page.
    #[inline]
    pub fn status_page(&self) -> *mut u8 {
        self.status_page.load(Ordering::Acquire)
    }

    /// Sets the status page, or none.
    ///
    /// # Safety
    /// - `status_page` is null or a [status page](neap_shared::status_page), writable, at a page
    ///   boundary, which stays mapped until another takes its place and no thread uses it any
    ///   longer.
    pub unsafe fn set_status_page(&self, status_page: *mut u8) {
        debug_assert!(status_page.addr().is_multiple_of(4096));
        self.status_page.store(status_page, Ordering::Release);
    }

    /// Sets whether the process has no status page yet, and gets one later.
    pub fn set_absent(&self, is_absent: bool) {
        self.is_absent.store(is_absent, Ordering::Relaxed);
    }

    /// Whether the process has no status page of its own yet, and gets one later.
    #[inline]
    pub fn is_status_page_missing(&self) -> bool {
        shared::is_inherited() | self.is_absent.load(Ordering::Relaxed)
    }

    /// The last requests: ask, purge, sample, guard. `None` without a status page.
    #[inline]
    pub fn asked(&self) -> Option<[u64; REQUEST_WORDS]> {
        let status_page = self.status_page();
        let word = |field: usize| {
            // SAFETY: a word of the status page (see `set_status_page`). Other processes write it,
            // hence an atomic.
            let word = unsafe { &*status_page.add(CONTROL_AT + field).cast::<AtomicU64>() };
            word.load(Ordering::Relaxed)
        };
        (!status_page.is_null()).then(|| {
            [
                word(offset_of!(Control, ask)),
                word(offset_of!(Control, purge)),
                word(offset_of!(Control, sample)),
                word(offset_of!(Control, guard)),
            ]
        })
    }

    /// The last requests considered: ask, purge, sample, guard.
    pub fn seen(&self) -> &[AtomicU64; REQUEST_WORDS] {
        &self.seen
    }

    /// The requests, if one of them was not considered.
    #[inline]
    pub fn pending(&self) -> Option<[u64; REQUEST_WORDS]> {
        let asked = self.asked()?;
        // Every slow path asks this: no branch for each word.
        let [first, second, third, fourth] = &self.seen;
        let differs = |word: usize, seen: &AtomicU64| asked[word] ^ seen.load(Ordering::Relaxed);
        let differing =
            differs(0, first) | differs(1, second) | differs(2, third) | differs(3, fourth);
        (differing != 0).then_some(asked)
    }
}
