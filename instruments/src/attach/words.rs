//! The status page as words, read and written one by one, because other processes access it
//! meanwhile.

use crate::sizes;
use bytemuck::{Pod, bytes_of, pod_read_unaligned};
use core::mem::offset_of;
use core::ptr::null_mut;
use neap_heap::base::sync::plain::{AtomicU32, AtomicU64, Ordering, fence};
use neap_heap::hook::REQUESTS;
use neap_heap::os::shared::Shared;
use neap_heap::pages::{MIRROR_WORDS, Mirror};
use neap_shared::stats::Snapshot;
use neap_shared::status_page::{
    ARENAS_AT, COARSE_AT, CONTROL_AT, Coarse, Control, FIGURES_AT, Guards, HEAD_AT, Head,
    MOST_ARENAS, Refusal, SERVED_AT, SIZES_AT, Served, SizeFigure, ThreadState,
};

/// The status page's words, wherever it is ([`REQUESTS`]).
pub(crate) struct Words;

/// See [`Words`].
pub(crate) static WORDS: Words = Words;

const _: () = assert!(size_of::<Coarse>() == MIRROR_WORDS * 8);

impl Words {
    /// Sets the status page.
    pub(super) fn set(&self, shared: Option<&Shared>) {
        let base = shared.map_or(null_mut(), |shared| shared.base.as_ptr());
        // SAFETY: null, or a status page that was just made, with room for all words. It is
        // unmapped in a fork's child, which has one thread, after it was replaced here.
        unsafe { REQUESTS.set_status_page(base) };
    }

    /// Whether there is a status page.
    pub(super) fn is_set(&self) -> bool {
        !REQUESTS.status_page().is_null()
    }

    /// `count` words of the status page from `offset` on.
    fn at(&self, offset: usize, count: usize) -> Option<&'static [AtomicU64]> {
        let base = REQUESTS.status_page();
        if base.is_null() {
            return None;
        }
        // SAFETY: the status page is mapped at a page boundary, writable, of this fixed size, until
        // a fork's child, which has one thread, unmaps it. Offsets are those of
        // `neap_shared::status_page`. Other processes write the same words, hence atomics.
        Some(unsafe { core::slice::from_raw_parts(base.add(offset).cast::<AtomicU64>(), count) })
    }

    fn store<T: Pod>(&self, offset: usize, value: &T) {
        if let Some(words) = self.at(offset, size_of::<T>() / 8) {
            for (word, bytes) in words.iter().zip(bytes_of(value).chunks_exact(8)) {
                word.store(pod_read_unaligned(bytes), Ordering::Relaxed);
            }
        }
    }

    fn store_word(&self, offset: usize, value: u64) {
        if let Some([word]) = self.at(offset, 1) {
            word.store(value, Ordering::Release);
        }
    }

    /// Stores a count that only rises, whichever thread comes last.
    fn raise_word(&self, offset: usize, value: u64) {
        if let Some([word]) = self.at(offset, 1) {
            word.fetch_max(value, Ordering::Release);
        }
    }

    pub(super) fn write_head(&self, head: &Head) {
        self.store(HEAD_AT, head);
    }

    pub(super) fn write_frontend(&self, frontend: u64) {
        self.store_word(HEAD_AT + offset_of!(Head, frontend), frontend);
    }

    /// The words that the page heap copies its figures to.
    pub(super) fn mirror(&self) -> Option<Mirror> {
        Some(Mirror {
            figures: self.at(COARSE_AT, MIRROR_WORDS)?.try_into().ok()?,
            arenas: self.at(ARENAS_AT, 1 + 2 * MOST_ARENAS)?,
        })
    }

    /// The word that the purge thread sleeps on and observers ring.
    pub(super) fn bell(&self) -> Option<&'static AtomicU32> {
        let [word] = self.at(CONTROL_AT + offset_of!(Control, bell), 1)? else {
            return None;
        };
        // SAFETY: the first half of a word that stays mapped as long as the slice's lifetime says.
        // All accesses go to this half.
        Some(unsafe { &*core::ptr::from_ref(word).cast::<AtomicU32>() })
    }

    /// When the observer's lease ends, and its interval, in ms.
    pub(super) fn lease(&self) -> Option<(u64, u64)> {
        let words = self.at(CONTROL_AT, size_of::<Control>() / 8)?;
        let at = |offset: usize| words[offset / 8].load(Ordering::Relaxed);
        Some((
            at(offset_of!(Control, lease_until_ms)),
            at(offset_of!(Control, interval_ms)),
        ))
    }

    pub(super) fn write_thread(&self, state: ThreadState) {
        self.store_word(SERVED_AT + offset_of!(Served, thread), state as u64);
    }

    pub(super) fn write_purged(&self, purge: u64, bytes: u64) {
        self.store_word(SERVED_AT + offset_of!(Served, purged_bytes), bytes);
        self.store_word(SERVED_AT + offset_of!(Served, purge), purge);
    }

    /// The requested sampling rate.
    pub(super) fn sample_rate(&self) -> Option<u64> {
        let [word] = self.at(CONTROL_AT + offset_of!(Control, sample_rate), 1)? else {
            return None;
        };
        Some(word.load(Ordering::Relaxed))
    }

    /// Writes the rate in force.
    pub(crate) fn write_rate(&self, rate: u64) {
        self.store_word(SERVED_AT + offset_of!(Served, sample_rate), rate);
    }

    pub(super) fn write_sampled(&self, sample: u64, refusal: Refusal) {
        self.store_word(
            SERVED_AT + offset_of!(Served, sample_refusal),
            refusal as u64,
        );
        self.store_word(SERVED_AT + offset_of!(Served, sample), sample);
    }

    /// The requested guards, as the observer wrote them.
    pub(super) fn guard_interval(&self) -> Option<u64> {
        let [word] = self.at(CONTROL_AT + offset_of!(Control, guard_interval), 1)? else {
            return None;
        };
        Some(word.load(Ordering::Relaxed))
    }

    /// Writes which allocations are guarded.
    pub(crate) fn write_guards(&self, guards: Guards) {
        self.store_word(
            SERVED_AT + offset_of!(Served, guard_interval),
            guards.word(),
        );
    }

    /// Writes how many guarded blocks were handed out.
    pub(crate) fn write_guarded_blocks(&self, count: u64) {
        self.raise_word(SERVED_AT + offset_of!(Served, guarded_blocks), count);
    }

    /// Writes how many memory errors they have shown. Safe in a signal handler.
    pub(crate) fn write_memory_errors(&self, count: u64) {
        self.raise_word(SERVED_AT + offset_of!(Served, memory_errors), count);
    }

    pub(super) fn write_guard_request(&self, guard: u64, refusal: Refusal) {
        self.store_word(
            SERVED_AT + offset_of!(Served, guard_refusal),
            refusal as u64,
        );
        self.store_word(SERVED_AT + offset_of!(Served, guard), guard);
    }

    pub(super) fn write_served(&self, ask: u64, written: u64, cost_ns: u64) {
        self.store_word(SERVED_AT + offset_of!(Served, written), written);
        self.store_word(SERVED_AT + offset_of!(Served, cost_ns), cost_ns);
        self.store_word(SERVED_AT + offset_of!(Served, ask), ask);
    }

    /// Writes the figures under their sequence number. One writer at a time.
    pub(super) fn write_figures(&self, figures: &Snapshot) {
        let Some([sequence]) = self.at(FIGURES_AT, 1) else {
            return;
        };
        let odd = sequence.load(Ordering::Relaxed) | 1;
        sequence.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        self.store(FIGURES_AT + 8, figures);
        sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// Writes the table of sizes, which is empty except in the counting mode.
    pub(super) fn write_sizes(&self) {
        sizes::each(|entry, figure| {
            self.store(SIZES_AT + entry * size_of::<SizeFigure>(), &figure);
        });
    }
}
