//! The life of caches: a thread's way in and out, and what a fork's child keeps of its parent's.
//!
//! A thread's cache begins with its first slow call and ends with the thread. Between the two, a
//! thread in hardened mode holds back freed blocks.
//!
//! A destructor that the C library runs ends a thread's cache. The thread may call the heap again
//! after the last round of destructors: in another destructor, or when the C library frees what the
//! thread used. Or the thread ends by a system call, and no destructor runs. So a sweep ends the
//! caches whose owners no longer exist, whenever the list has doubled, and each drain does the
//! same. If another thread of the process has the TID by then, the cache ends later. Blocks that
//! such a thread held in quarantine go to their slabs at once.

use super::bounds::{FastPath, array_bytes};
use super::heap::{HEAP, Heap, SAMPLING};
use super::machine;
use super::magazine::Magazine;
use super::opened::Opened;
use super::registry::{BATCH, Batch, Destructor, End, Heir, Refused, Registry};
use super::thread_cache::{Blocks, CACHE_BYTES, Cache};
use crate::base::sync::Ordering;
use crate::os::lock::Lock;
use crate::os::process;
use crate::os::thread::{self, LEFT, MAIN, has_ended, with_signals_masked};
use crate::pages::Age;
use crate::reclaim::wakeup::Urgency;
use crate::slab::class::{self, CLASSES, Class};
use core::ptr::{self, NonNull};

/// How often [`Heap::is_quiet`] looks.
const QUIET_TRIES: usize = 10_000;

/// Where a cache may begin, in words after the start of its memory: tops are three words apart.
const SHIFTS: usize = size_of::<Magazine>() / WORD;
const WORD: usize = size_of::<usize>();
/// A processor takes two addresses that differ by a multiple of this for the same.
const ALIKE: usize = 4096;

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
        let block = self.make_cache()?;
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

    /// A cache in memory of its own; `None` when out of memory.
    pub(super) fn make_cache(&'static self) -> Option<NonNull<Cache>> {
        let memory = self.take_meta(CACHE_BYTES)?;
        let shift = shift_at(memory.addr().get());
        // SAFETY: at most `MOST_SHIFT`, so inside the memory.
        let block = unsafe { memory.byte_add(shift) }.cast::<Cache>();
        // SAFETY: the memory is large enough, the place in it aligned to a word, and ours.
        unsafe { Cache::put(block, shift) };
        if class::is_replaced() {
            // SAFETY: initialised just now, and no other thread has it yet.
            unsafe { &mut *block.as_ptr() }.follow_classes();
        }
        Some(block)
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
        self.empty(open, Age::New);
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
    /// is gone. Slabs that are empty then are as old as `age` says. The cache stays empty, because
    /// its thread no longer reaches it.
    pub(super) fn empty(&'static self, mut open: Opened<'_>, age: Age) {
        Class::all().for_each(|class| self.empty_class(&mut open, class, age));
    }

    /// [`Heap::empty`] for one class. The exchange gets an array again when it is used again.
    pub(super) fn empty_class(&'static self, open: &mut Opened<'_>, class: Class, age: Age) {
        // SAFETY: the cache is the calling thread's own, or no thread's.
        unsafe { open.magazine(class).settle() };
        let filled = open.magazine(class).filled();
        // SAFETY: as above; settled.
        unsafe { self.flush(open, class, filled, age) };
        // SAFETY: as above.
        let array = unsafe { open.take_array(class) };
        if let Some((array, room)) = array {
            // SAFETY: the array was allocated for this room; drainers are locked out and find none
            // from now on.
            unsafe { self.give_meta(array, array_bytes(room)) };
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

impl Heap {
    /// Ends all caches whose threads are gone, unless another thread drains. Tells the purge thread
    /// to end if none is left. Out of line, because the batch takes room on the stack.
    #[cold]
    #[inline(never)]
    pub fn sweep(&'static self) {
        let Some(_alone) = self.registry.draining.try_lock() else {
            return;
        };
        for _ in 0..=self.registry.count() / BATCH {
            let batch = self.registry.pin(BATCH);
            self.bury(&batch);
            self.registry
                .unpin(&batch, |cache| self.release_cache(cache));
        }
        self.registry.note_swept();
        if self.registry.is_empty() {
            self.tide.end_soon();
        }
    }

    /// Ends the caches of a batch whose threads are gone. Their memory goes back when the batch is
    /// unpinned.
    pub(super) fn bury(&'static self, batch: &Batch) {
        // In a process that shares the memory, or copied it without the C library, the owners are
        // another process's threads.
        if !process::may_query() || !process::is_own() {
            return;
        }
        for (_, cache) in batch.caches() {
            match cache.owner.load(Ordering::Relaxed) {
                LEFT => _ = self.registry.leave(cache),
                // A handler that forks here would find the cache without an owner and half empty.
                id if has_ended(id) => _ = with_signals_masked(|| self.bury_one(cache)),
                _ => {}
            }
        }
    }

    /// False if the cache cannot end, because its thread was changing it or a fork in a handler
    /// left it behind.
    fn bury_one(&'static self, cache: &'static Cache) -> bool {
        let is_whole = !cache.is_moved() && cache.is_quiet();
        if !is_whole || !self.registry.is_listed(cache) {
            return false;
        }
        let mut open = cache.open();
        let granted = open.inner.granted;
        self.restore(&mut open, granted);
        let waiting = self.end_waiting(&mut open);
        self.empty(open, Age::New);
        self.registry.leave(cache);
        // SAFETY: freed by the program, and held back since.
        unsafe { self.give_all(&waiting) };
        true
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

/// How many bytes after `memory` the calling thread's cache should begin.
///
/// To decide whether a load must wait for an earlier store, a processor first compares the low
/// twelve bits of their addresses. Each `malloc` and `free` ends by storing a magazine's top, and
/// the next one begins by loading the thread's slot and the page heap's bounds. If one of these has
/// the same low bits as the top, each call waits for the previous one (measured on Zen: 17 % of a
/// pair, for the class concerned). So a cache begins a word or two later if its tops would collide
/// with a word that the fast path loads. Agner Fog, "The microarchitecture of Intel, AMD and VIA
/// CPUs", on false store forwarding.
fn shift_at(memory: usize) -> usize {
    shift_for(memory, &loaded())
}

/// Addresses of the words that the fast path loads before it stores.
fn loaded() -> [usize; 3] {
    let pages = &HEAP.pages;
    let [base, slices] =
        [&pages.primary_base, &pages.primary_slices].map(|word| core::ptr::from_ref(word).addr());
    [machine::slot_address(), base, slices]
}

fn shift_for(memory: usize, loaded: &[usize]) -> usize {
    let shifts = (0..SHIFTS).map(|words| words * WORD);
    let cost = |shift: &usize| -> usize {
        let costs = loaded.iter().map(|&word| cost(memory + shift, word));
        costs.sum()
    };
    shifts.min_by_key(cost).unwrap_or(0)
}

/// The cost of the collision between a top of a cache at `cache` and the word at `word`, if there
/// is one. It is higher for a smaller class, which has more blocks.
fn cost(cache: usize, word: usize) -> usize {
    let distance = word.wrapping_sub(cache) % ALIKE / WORD * WORD;
    let class = distance / size_of::<Magazine>();
    match distance.is_multiple_of(size_of::<Magazine>()) && (1..=CLASSES).contains(&class) {
        true => CLASSES + 1 - class,
        false => 0,
    }
}

impl Heap {
    /// Visits all locks below the front but those of caches, in their order.
    #[inline(never)]
    #[unsafe(link_section = "neap_text")]
    pub fn each_lock(&self, visit: &mut dyn FnMut(&Lock)) {
        let before = [
            &self.tide.step,
            &self.registry.draining,
            &self.registry.lock,
        ];
        before.into_iter().for_each(&mut *visit);
        // Only now is it certain which depots are in use.
        self.depots
            .locks()
            .chain([self.stacks.lock()])
            .chain(self.pages.locks())
            .for_each(visit);
    }

    /// In a fork's child, whose only thread this is: the caches of the others stay behind. Locks of
    /// other kinds are free, or the thread's own: what it was changing when a handler of signals
    /// interrupted it, and forked, it goes on changing.
    ///
    /// # Safety
    /// - This is a fork's child, and no other thread runs in it.
    pub unsafe fn after_fork_in_child(&'static self) {
        // SAFETY: the caller's promise: the child has one thread.
        let own = unsafe { self.registry.own() };
        if let Some(mut open) = own
            .filter(|own| own.lock().free_if_whole())
            .and_then(Cache::open_own)
        {
            open.guard_floors();
        }
        if let Some(own) = own {
            self.registry.note_main(own);
        }
        self.registry.forget_unmade_key();
        self.registry.forget_left_exchange();
        let is_changing = self.registry.lock.is_mine();
        let is_draining = self.registry.draining.is_mine();
        if is_changing || is_draining {
            self.registry.abandon_left();
        }
        if !is_changing {
            let drained = is_draining.then_some(&self.registry);
            let granted = granted_to(own, self.registry.exchange(), drained);
            if self.registry.keep_only(own) {
                self.budget.reset(granted);
            }
        }
        self.pressure.rest();
        self.pages.after_fork_in_child();
    }
}

impl Registry {
    /// The calling thread's cache: the one that its slot shows, or, while the thread enters or
    /// ends, the one that it moves, if that is in the list.
    ///
    /// # Safety
    /// - As [`Registry::caches`].
    pub(super) unsafe fn own(&self) -> Option<&'static Cache> {
        // SAFETY: the slot holds a sentinel or the thread's own cache.
        let shown = unsafe { &*machine::slot() };
        match shown.is_sentinel() {
            false => Some(shown),
            // SAFETY: the caller's promise.
            true => unsafe { self.caches() }.find(|cache| cache.is_moved_by_caller()),
        }
    }

    /// In a fork's child: forgets an exchange that a thread of the parent was changing.
    pub(super) fn forget_left_exchange(&self) {
        if (self.exchange()).is_some_and(|exchange| exchange.lock().free_if_left()) {
            self.exchange.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// For a thread that was interrupted while it looked at caches: those whose threads were
    /// changing them stay as they are, and hold nothing for it when it goes on.
    fn abandon_left(&self) {
        // SAFETY: the child has one thread.
        let (own, caches) = unsafe { (self.own(), self.caches()) };
        for cache in caches {
            cache.forget_mover();
            // Its magazines may be half changed, so it is never emptied. Where the list is not cut
            // now, it leaves it at the next sweep.
            if own.is_none_or(|own| !ptr::eq(own, cache)) {
                let owner = if self.lock.is_mine() { LEFT } else { 0 };
                cache.owner.store(owner, Ordering::Relaxed);
            }
            if cache.lock().free_if_left() {
                cache.open().abandon();
            }
        }
    }

    /// In a fork's child: notes that this cache belongs to its first thread.
    fn note_main(&self, own: &Cache) {
        // Writes only if the value differs, because a write in a child copies a page.
        if own.owner.load(Ordering::Relaxed) != MAIN {
            own.owner.store(MAIN, Ordering::Relaxed);
        }
        if self.has_main_left() {
            self.main_left.store(false, Ordering::Relaxed);
        }
    }

    /// The caches that a drainer has in hand, but for `own`.
    fn in_hand(&self, own: Option<&'static Cache>) -> impl Iterator<Item = &'static Cache> + use<> {
        let is_own = move |cache: &Cache| own.is_some_and(|own| ptr::eq(own, cache));
        // SAFETY: the child has one thread.
        unsafe { self.caches() }.filter(move |cache| cache.is_pinned() && !is_own(cache))
    }

    /// Cuts the list down to the calling thread's cache, which no drainer has in hand any more.
    /// False, and as little written as can be, if it was the only one.
    fn keep_only(&self, own: Option<&'static Cache>) -> bool {
        if let Some(own) = own {
            own.unpin();
        }
        let only = own.map_or(ptr::null_mut(), |own| ptr::from_ref(own).cast_mut());
        let is_last = |own: &Cache| own.next.load(Ordering::Relaxed).is_null();
        if self.first.load(Ordering::Relaxed) == only && own.is_none_or(is_last) {
            return false;
        }
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        self.last.store(ptr::null_mut(), Ordering::Relaxed);
        self.count
            .store(usize::from(own.is_some()), Ordering::Relaxed);
        if let Some(own) = own {
            self.append(own);
        }
        true
    }
}

/// The grants of the caches that a fork's child keeps: the thread's own, the exchange, and those
/// that its drain has in hand, if it is draining. A handler may have interrupted the thread while
/// it changed a grant. Then the sum may be too large by that change, but never too small
/// ([`Heap::restore`]).
fn granted_to(
    own: Option<&'static Cache>,
    exchange: Option<&'static Cache>,
    drained: Option<&Registry>,
) -> usize {
    let in_hand = drained
        .into_iter()
        .flat_map(|registry| registry.in_hand(own));
    let caches = own.into_iter().chain(exchange).chain(in_hand);
    // SAFETY: the child has one thread, and the caches in its list are alive.
    let granted = |cache: &Cache| unsafe { (&raw const (*cache.inner.get()).granted).read() };
    caches.map(granted).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::own_cache;
    use std::vec::Vec;

    #[test]
    fn a_cache_moves_only_as_far_as_it_must() {
        let memory = 0x7000_0000_a000;
        let top_of = |class: usize| 0x5000 + class * size_of::<Magazine>();
        assert_eq!(shift_for(memory, &[]), 0);
        assert_eq!(
            shift_for(memory, &[top_of(4) + WORD, top_of(CLASSES + 1)]),
            0
        );
        assert_eq!(shift_for(memory, &[top_of(4)]), WORD);
        assert_eq!(shift_for(memory, &[top_of(4), top_of(9) + WORD]), 2 * WORD);
        // Every place has a collision, so the one with the largest class is taken.
        let everywhere = [top_of(4), top_of(40) + WORD, top_of(7) + 2 * WORD];
        assert_eq!(shift_for(memory, &everywhere), WORD);
    }

    #[test]
    fn a_threads_cache_stands_where_its_tops_cost_least() {
        let look = || {
            let cache = own_cache::enter().expect("a cache");
            let slot = machine::slot_address();
            // SAFETY: the slot is a pointer's, and this thread's own.
            let held = unsafe { *(slot as *const usize) };
            assert_eq!(held, core::ptr::from_ref(cache).addr());
            assert_eq!(held, machine::slot().addr());
            let memory = held - cache.open().inner.shift as usize;
            let costs = [0, WORD, 2 * WORD].map(|shift| -> usize {
                let costs = loaded().map(|word| cost(memory + shift, word));
                costs.iter().sum()
            });
            let cost_here: usize = loaded().iter().map(|&word| cost(held, word)).sum();
            assert_eq!(Some(&cost_here), costs.iter().min());
        };
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(look)).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}
