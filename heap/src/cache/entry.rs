//! A thread's way in and out: its cache begins with its first slow call and ends with the thread.
//! Between the two, a thread in hardened mode holds back freed blocks.

use super::bounds::FastPath;
use super::bounds::array_bytes;
use super::colour;
use super::heap::{Heap, SAMPLING};
use super::machine;
use super::opened::Opened;
use super::registry::{Destructor, End, Heir, Refused};
use super::thread_cache::{CACHE_BYTES, Cache};
use super::waiting::Blocks;
use crate::base::sync::Ordering;
use crate::os::thread;
use crate::reclaim::wakeup::Urgency;
use crate::slab::class::Class;
use crate::slab::class_table;
use core::ptr::NonNull;

/// How often [`Heap::is_quiet`] looks.
const QUIET_TRIES: usize = 10_000;

impl Cache {
    /// Whether the cache's lock is free now.
    pub fn is_quiet(&self) -> bool {
        self.lock().try_lock().is_some()
    }

    /// [`Cache::open`] of what the calling thread's slot holds; `None` of a sentinel, and as for
    /// [`Cache::open_other`].
    pub(super) fn open_own(&self) -> Option<Opened<'_>> {
        (!self.is_sentinel()).then(|| self.open_other()).flatten()
    }

    /// [`Cache::open`] for any thread. `None` in a handler of signals that interrupted the calling
    /// thread while it held the lock.
    #[inline(never)]
    pub fn open_other(&self) -> Option<Opened<'_>> {
        (!self.lock().is_mine()).then(|| self.open())
    }
}

impl Heap {
    /// Whether the locks that a report takes can be had: not so, for good, in a signal handler that
    /// interrupted their holder. Others hold them for moments, so it looks more than once.
    pub fn is_quiet(&self) -> bool {
        let caches_are = || {
            let guard = self.registry.lock.try_lock();
            // SAFETY: the lock is held.
            let is_quiet = |_| unsafe { self.registry.own() }.is_none_or(Cache::is_quiet);
            guard.is_some_and(is_quiet)
        };
        let quiet = || caches_are() && self.stacks.is_quiet() && self.pages.is_quiet();
        (0..QUIET_TRIES).any(|_| quiet())
    }

    /// Sets the mean bytes between two samples of the profiler; 0: none. `draw` gets each cache
    /// before its owner may count by it. Caches that are made later have drawn nothing.
    pub fn set_sampling(&'static self, rate: u64, mut draw: impl FnMut(&mut Opened<'_>)) {
        self.sampling.store(rate, Ordering::Relaxed);
        self.set_mode(SAMPLING, rate != 0);
        let path = self.fast_path();
        self.registry.for_each(|cache| {
            if let Some(mut open) = cache.open_other() {
                draw(&mut open);
                open.set_path_of_other(path);
            }
        });
    }

    /// Makes a cache for the calling thread, which has none. `None` when out of memory: the call
    /// at hand goes without. At the thread's end, `at_end` gets the cache and
    /// [ends](Heap::retire_cache) it.
    #[cold]
    pub fn enter(&'static self, at_end: Destructor) -> Option<&'static Cache> {
        let end = match self.registry.admit(at_end) {
            // A cache and its magazines take two slabs, too much where writable memory is scant.
            Ok(end) if !self.pages.is_scant() => end,
            Err(Refused::Now) => return None,
            _ => {
                // SAFETY: a static.
                unsafe { machine::set_slot(self.gone()) };
                return None;
            }
        };
        if self.registry.is_crowded() {
            self.sweep();
        }
        let memory = self.take_meta(CACHE_BYTES)?;
        let shift = colour::shift(memory.addr().get());
        // SAFETY: at most `MOST_SHIFT`, so inside the memory.
        let block = unsafe { memory.byte_add(shift) }.cast::<Cache>();
        // SAFETY: the memory is large enough, the place in it aligned to a word, and ours.
        unsafe { Cache::put(block, shift) };
        if class_table::is_replaced() {
            // SAFETY: initialised just now, and no other thread has it yet.
            unsafe { &mut *block.as_ptr() }.follow_classes();
        }
        // SAFETY: initialised above; lives until `retire_cache`.
        let cache = unsafe { block.as_ref() };
        cache.begin_move();
        self.registry.enroll(cache);
        // Looked at once the cache is in the list: whoever changes the mode later finds it there.
        let mut open = cache.open();
        match self.fast_path() {
            FastPath::On => open.publish_access(),
            path => open.set_path(path),
        }
        drop(open);
        // From here on calls from inside `key.set` find the cache.
        // SAFETY: the cache lives until the thread's end, where the slot is set again.
        unsafe { machine::set_slot(cache) };
        cache.note_owner();
        cache.end_move();
        if let End::WithThread(key) = end
            // SAFETY: the key's destructor takes the block of a cache.
            && !unsafe { key.set(block.as_ptr().cast()) }
        {
            self.retire_new(block);
            return None;
        }
        Some(cache)
    }

    /// What the slot of a thread without a cache holds. The caller holds no cache's lock.
    fn gone(&self) -> &'static Cache {
        let _guard = self.registry.lock.lock();
        // SAFETY: the lock is held.
        unsafe { Cache::gone() }
    }

    /// Ends a cache that was made just now. Out of line, because the blocks take room on the stack.
    #[cold]
    #[inline(never)]
    fn retire_new(&'static self, block: NonNull<Cache>) {
        let waiting = self.retire_cache(block);
        // SAFETY: freed by the program.
        unsafe { self.give_all(&waiting) };
    }

    /// Ends the calling thread's cache: all it holds goes back, but for freed blocks that it held
    /// back. These are the caller's.
    pub(crate) fn retire_cache(&'static self, block: NonNull<Cache>) -> Blocks {
        // SAFETY: the thread's own cache, alive until it is released below.
        let (cache, gone) = (unsafe { block.as_ref() }, self.gone());
        let was_main = cache.owner.load(Ordering::Relaxed) == thread::MAIN;
        let mut open = cache.open();
        // First, while the slot shows the cache: a fork's child counts no grants of one that moves.
        let granted = open.inner.granted;
        self.restore(&mut open, granted);
        cache.begin_move();
        // Destructors that run after this one are served without a cache.
        // SAFETY: a static.
        unsafe { machine::set_slot(gone) };
        let waiting = self.end_waiting(&mut open);
        self.empty(open);
        if self.registry.leave(cache) == Heir::Thread {
            self.release_cache(cache);
        }
        self.pages.tend_left();
        match self.registry.is_empty() {
            true => self.tide.end_soon(),
            // From now on the purge thread checks whether it is the last thread.
            false if was_main => self.tide.bell.ring(Urgency::Now),
            false => {}
        }
        waiting
    }

    /// Gives back the blocks and the arrays of the calling thread's cache, or of one whose thread
    /// is gone. The cache stays empty, because its thread no longer reaches it.
    pub(super) fn empty(&'static self, mut open: Opened<'_>) {
        for class in Class::all() {
            // SAFETY: the cache is the calling thread's own, or its thread is gone.
            unsafe { open.magazine(class).settle() };
            let filled = open.magazine(class).filled();
            // SAFETY: as above; settled.
            unsafe { self.flush(&mut open, class, filled) };
            // SAFETY: as above.
            let array = unsafe { open.take_array(class) };
            if let Some((array, room)) = array {
                // SAFETY: the array was allocated for this room; drainers are locked out and find
                // none from now on.
                unsafe { self.give_meta(array, array_bytes(room)) };
            }
        }
    }

    /// Gives back the memory of an empty cache that is in no thread's slot, not in the list, and
    /// not pinned.
    pub(super) fn release_cache(&'static self, cache: &'static Cache) {
        let shift = cache.open().inner.shift as usize;
        let start = NonNull::from(cache).cast::<u8>();
        // SAFETY: where its memory starts; nothing reaches it any more.
        unsafe { self.give_meta(start.byte_sub(shift), CACHE_BYTES) };
    }
}

impl Opened<'_> {
    /// Bytes of the freed blocks that the thread holds back.
    pub fn waiting_bytes(&self) -> usize {
        // SAFETY: the thread's own memory; the lock is held.
        let blocks = self.inner.waiting.map(|blocks| unsafe { blocks.as_ref() });
        blocks.map_or(0, Blocks::bytes)
    }

    /// Takes the blocks that the thread holds back.
    fn take_waiting(&mut self) -> Blocks {
        match self.inner.waiting {
            Some(mut waiting) => {
                // SAFETY: as above.
                let waiting = unsafe { waiting.as_mut() };
                let blocks = waiting.clone();
                waiting.clear();
                blocks
            }
            None => Blocks::none(),
        }
    }
}

impl Heap {
    /// Gives the calling thread memory for blocks that it holds back, if it has none.
    #[cold]
    pub(crate) fn prepare_waiting(&'static self, cache: &Cache) {
        let Some(open) = cache.open_own().filter(|open| open.inner.waiting.is_none()) else {
            return;
        };
        if let Some(memory) = self.take_meta(size_of::<Blocks>()) {
            let blocks = memory.cast::<Blocks>();
            // SAFETY: taken above, for that many bytes; metadata is at a multiple of 8.
            unsafe { blocks.write(Blocks::none()) };
            open.inner.waiting = Some(blocks);
        }
    }

    /// Takes the blocks that the calling thread holds back.
    pub(crate) fn take_waiting(&self, cache: &Cache) -> Blocks {
        let open = cache.open_own();
        open.map_or(Blocks::none(), |mut open| open.take_waiting())
    }

    /// At the end of a thread, frees its memory for blocks that it holds back, and returns these
    /// blocks. The caller brings them to quarantine.
    pub(super) fn end_waiting(&'static self, open: &mut Opened<'_>) -> Blocks {
        let blocks = open.take_waiting();
        if let Some(memory) = open.inner.waiting.take() {
            // SAFETY: taken in `prepare_waiting` for as many bytes; the blocks were copied.
            unsafe { self.give_meta(memory.cast(), size_of::<Blocks>()) };
        }
        blocks
    }
}
