//! A fork, for all below the front: its locks, and what the child keeps of its parent's threads.

use super::heap::Heap;
use super::machine;
use super::registry::Registry;
use super::thread_cache::Cache;
use crate::base::sync::Ordering;
use crate::os::cgroup;
use crate::os::lock::Lock;
use crate::os::thread::{LEFT, MAIN};
use core::ptr;

impl Heap {
    /// Visits all locks below the front but those of caches, in their order.
    #[inline(never)]
    pub fn each_lock(&self, visit: &mut dyn FnMut(&Lock)) {
        let before = [
            &self.tide.step,
            &self.registry.draining,
            &self.registry.lock,
        ];
        let after = [self.stacks.lock(), cgroup::opening()];
        before
            .into_iter()
            .chain(self.depots.locks())
            .chain(after)
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
        let is_changing = self.registry.lock.is_mine();
        let is_draining = self.registry.draining.is_mine();
        if is_changing || is_draining {
            self.registry.abandon_left();
        }
        if !is_changing {
            let drained = is_draining.then_some(&self.registry);
            let granted = granted_to(own, drained);
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

/// What the caches that a fork's child goes on with were granted: the thread's own, and those that
/// its drain has in hand, if it is draining. A handler may have interrupted the thread while it
/// changed a grant. Then the sum may be too large by that change, but never too small
/// ([`Heap::restore`]).
fn granted_to(own: Option<&'static Cache>, drained: Option<&Registry>) -> usize {
    let in_hand = drained
        .into_iter()
        .flat_map(|registry| registry.in_hand(own));
    let caches = own.into_iter().chain(in_hand);
    // SAFETY: the child has one thread, and the caches in its list are alive.
    let granted = |cache: &Cache| unsafe { (&raw const (*cache.inner.get()).granted).read() };
    caches.map(granted).sum()
}
