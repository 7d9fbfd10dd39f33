//! The region of sites: written under a lock, read by other processes at any time.

use super::maps::Maps;
use super::python;
use super::samples::{Samples, Weight};
use super::table::{Table, hash_of};
use crate::attach::monitor;
use core::mem::offset_of;
use core::ptr;
use neap_heap::base::sync::UnsafeCell;
use neap_heap::base::sync::plain::{AtomicBool, AtomicU64, Ordering};
use neap_heap::cache::heap::HEAP;
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;
use neap_heap::os::lock::{Lock, Rank};
use neap_heap::os::process;
use neap_heap::os::shared::{self, Shared};
use neap_shared::sites::{
    BYTES, FRAMES, Head, MAGIC, MAPS_AT, MAPS_BYTES, MOST_SITES, NAME, PYTHON_FRAMES, SITES_AT,
    Site, VERSION, is_python, site_at,
};
use neap_shared::status_page::KIND_PROFILE;

/// Guards [`REGION`].
pub(super) static LOCK: Lock = Lock::new(Rank::Profile);

/// The process's region, if sampling was ever on. All zero at first, so that it takes no room in
/// the library's file.
#[unsafe(link_section = ".bss.neap_tables")]
pub(super) static REGION: Region = Region {
    inner: UnsafeCell::new(Inner {
        shared: None,
        table: Table::new(),
        live_samples: Samples::new(),
        maps: Maps::new(),
        named_sites: 0,
        random: 0,
        samples: 0,
        dropped: 0,
    }),
    live: [const { AtomicU64::new(0) }; 2],
    samples: AtomicU64::new(0),
};

/// Whether the region was ever opened; a fork's child checks only this.
#[unsafe(link_section = "neap_fork")]
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// See [`REGION`].
pub(super) struct Region {
    /// guarded by: [`LOCK`]
    inner: UnsafeCell<Inner>,
    /// Usable and requested bytes of all live blocks, as the samples estimate them.
    live: [AtomicU64; 2],
    /// Live samples.
    samples: AtomicU64,
}

struct Inner {
    shared: Option<Shared>,
    /// Sites by the hash of their frames.
    table: Table,
    live_samples: Samples,
    maps: Maps,
    /// Sites in use, but for site 0, which is for samples without a site of their own.
    named_sites: u32,
    /// State of the generator for rounding.
    random: u64,
    /// Samples so far, and those whose site had no room.
    samples: u64,
    dropped: u64,
}

// SAFETY: `inner` is reached only under `LOCK`.
unsafe impl Sync for Region {}

impl Region {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let _guard = LOCK.lock();
        // SAFETY: the lock is held.
        act(unsafe { &mut *self.inner.get() })
    }

    /// Creates the region unless it exists. False if memory is short.
    pub(super) fn open(&self) -> bool {
        self.with(Inner::open)
    }

    /// Writes the new sampling rate.
    pub(super) fn note_rate(&self, rate: u64) {
        self.with(|inner| {
            inner.set_head(offset_of!(Head, rate), rate);
            inner.set_head(offset_of!(Head, changed_ms), now_ms());
        });
    }

    /// Adds a sample of the block at `address` with these frames. `weight` gets a uniform number
    /// in 0 to 1. It replaces an earlier sample at the address, whose free was not seen. Without
    /// memory for the sample, nothing is added.
    pub(super) fn add(&self, address: usize, frames: &[u64], weight: impl FnOnce(f64) -> Weight) {
        self.take_away(address);
        self.with(|inner| {
            let mut weight = weight(inner.random());
            weight.site = inner.site_of(frames);
            if inner.live_samples.insert(address, weight) {
                inner.change(&weight, Change::Allocated);
                self.samples.fetch_add(1, Ordering::Relaxed);
                self.note_live(weight.usable, weight.bytes);
            }
        });
    }

    /// Subtracts the sample of the block at `address`, if it has one, from what is live.
    pub(super) fn take_away(&self, address: usize) {
        // The caller has the block, so no other thread adds or takes away its sample.
        if self.samples.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.with(|inner| {
            if let Some(weight) = inner.live_samples.remove(address) {
                inner.change(&weight, Change::Freed);
                self.samples.fetch_sub(1, Ordering::Relaxed);
                self.note_live(weight.usable.wrapping_neg(), weight.bytes.wrapping_neg());
            }
        });
    }

    fn note_live(&self, usable: u64, bytes: u64) {
        self.live[0].fetch_add(usable, Ordering::Relaxed);
        self.live[1].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Usable and requested bytes of all live blocks. Takes no lock, because a process may end in a
    /// signal handler that interrupted a sample.
    pub(super) fn live(&self) -> (u64, u64) {
        let [usable, bytes] = &self.live;
        (
            usable.load(Ordering::Relaxed),
            bytes.load(Ordering::Relaxed),
        )
    }

    /// Copies words from `offset` on, in bytes. False without a region, or if it does not contain
    /// them, or if `offset` is not a multiple of 8.
    pub(super) fn read(&self, offset: usize, into: &mut [u64]) -> bool {
        let end = offset.checked_add(size_of_val(into));
        if !offset.is_multiple_of(8) || end.is_none_or(|end| end > BYTES) {
            return false;
        }
        // Under the lock, because a fork's child unmaps its parent's region.
        self.with(|inner| {
            let words = into.iter_mut().enumerate();
            words.fold(true, |_, (number, word)| {
                let found = inner.word(offset + number * 8);
                *word = found.map_or(0, |found| found.load(Ordering::Relaxed));
                found.is_some()
            })
        })
    }

    /// In a fork's child. If the forking thread was taking a sample, the sample continues in the
    /// parent's region and is lost.
    pub(super) fn after_fork_in_child(&self) {
        if IS_OPEN.load(Ordering::Relaxed) && !LOCK.is_mine() {
            // SAFETY: the child has one thread, and the region was at rest.
            unsafe { (*self.inner.get()).leave_parents() };
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Allocated,
    Freed,
}

impl Inner {
    fn open(&mut self) -> bool {
        if self.shared.is_some() {
            return true;
        }
        // A child that could not get a region of its own gets none later, because its sites' frames
        // are in its parent's region.
        if self.named_sites > 0 {
            return false;
        }
        let Some(shared) = create() else {
            return false;
        };
        IS_OPEN.store(true, Ordering::Relaxed);
        if !self.table.open() {
            shared.close();
            // SAFETY: no other thread has its address.
            unsafe { shared.unmap() };
            return false;
        }
        self.shared = Some(shared);
        self.random = process::now_ns() | 1;
        self.write_head();
        self.set_head(offset_of!(Head, began_ms), now_ms());
        monitor::tell(&shared, KIND_PROFILE);
        true
    }

    /// Sites in use.
    fn sites(&self) -> u32 {
        self.named_sites + 1
    }

    fn write_head(&self) {
        let head = [
            (offset_of!(Head, magic), MAGIC),
            (offset_of!(Head, version), VERSION),
            (offset_of!(Head, bytes), BYTES as u64),
            (offset_of!(Head, pid), process::process_id() as u64),
            (offset_of!(Head, sites), u64::from(self.sites())),
        ];
        head.into_iter()
            .for_each(|(at, value)| self.set_head(at, value));
    }

    /// A word of the region.
    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        debug_assert!(offset < BYTES && offset.is_multiple_of(8));
        // In a raw clone's child, the region is the parent's.
        let shared = self.shared.as_ref().filter(|_| shared::is_mine())?;
        // SAFETY: within the mapping, which is page-aligned. Other processes write there as well,
        // hence an atomic.
        Some(unsafe { &*shared.base.as_ptr().add(offset).cast::<AtomicU64>() })
    }

    #[inline(never)]
    fn set(&self, offset: usize, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    fn set_head(&self, field: usize, value: u64) {
        self.set(field, value);
    }

    /// Counts a sample, first in the private sums: other processes may have overwritten those in
    /// the region.
    fn change(&mut self, weight: &Weight, change: Change) {
        let Some(sums) = self.table.sums(weight.site) else {
            return;
        };
        for (sum, by) in sums.live.iter_mut().zip(weight.amounts()) {
            *sum = match change {
                Change::Allocated => sum.wrapping_add(by),
                Change::Freed => sum.wrapping_sub(by),
            };
        }
        if change == Change::Allocated {
            for (sum, by) in sums.allocated.iter_mut().zip(weight.amounts()) {
                *sum = sum.wrapping_add(by);
            }
            self.samples += 1;
            self.set_head(offset_of!(Head, samples), self.samples);
        }
        self.write_sums(weight.site);
    }

    /// Writes the sums of a site to the region.
    fn write_sums(&mut self, site: u32) {
        let at = site_at(site as usize);
        if let Some(sums) = self.table.sums(site).copied() {
            let (allocated, live) = (sums.allocated, sums.live);
            for (number, &value) in allocated.iter().chain(&live).enumerate() {
                self.set(at + offset_of!(Site, alloc_objects) + number * 8, value);
            }
        }
    }

    /// The site of these frames, created if it is new; site 0 if there is no room or there are no
    /// frames.
    fn site_of(&mut self, frames: &[u64]) -> u32 {
        if frames.is_empty() {
            return 0;
        }
        let hash = hash_of(frames);
        let next = self.next();
        match self.table.find(hash, next) {
            Some(site) if Some(site) == next => self.begin_site(site, hash, frames),
            Some(site) => site,
            None => {
                self.dropped += 1;
                self.set_head(offset_of!(Head, dropped), self.dropped);
                0
            }
        }
    }

    /// The number of a new site, if there is room.
    fn next(&self) -> Option<u32> {
        Some(self.sites()).filter(|&next| next < MOST_SITES as u32)
    }

    fn begin_site(&mut self, site: u32, hash: u64, frames: &[u64]) -> u32 {
        self.write_site(site, hash, frames);
        let depth = frames.len().min(FRAMES) as u64;
        self.set(site_at(site as usize) + offset_of!(Site, depth), depth);
        self.note_maps(frames);
        if frames.first().is_some_and(|&frame| is_python(frame)) {
            self.name_functions();
        }
        site
    }

    fn write_site(&mut self, site: u32, hash: u64, frames: &[u64]) {
        let at = site_at(site as usize);
        for (number, &frame) in frames.iter().take(FRAMES).enumerate() {
            self.set(at + offset_of!(Site, frames) + number * 8, frame);
        }
        self.set(at + offset_of!(Site, hash), hash);
        self.named_sites = site;
        self.set_head(offset_of!(Head, sites), u64::from(self.sites()));
    }

    /// Names the new ones among the Python functions that this thread executes.
    #[inline(never)]
    fn name_functions(&mut self) {
        let (mut calls, mut left) = (python::calls(), PYTHON_FRAMES);
        while left > 0
            && let Some(call) = calls.next()
        {
            left -= 1;
            let (frame, next) = (call.frame, self.next());
            match self.table.find(frame, next) {
                Some(site) if Some(site) == next => self.write_site(site, frame, &call.name()),
                _ => {}
            }
        }
    }

    /// Writes down the new mappings among those that hold the frames.
    fn note_maps(&mut self, frames: &[u64]) {
        if frames.iter().all(|&frame| self.maps.covers(frame)) {
            return;
        }
        let Some(shared) = &self.shared else {
            return;
        };
        // SAFETY: the region's part for text. Only this thread writes there, except a hostile
        // process, which harms only itself.
        let room = unsafe {
            core::slice::from_raw_parts_mut(shared.base.as_ptr().add(MAPS_AT), MAPS_BYTES)
        };
        let bytes = self.maps.read(room);
        self.set_head(offset_of!(Head, maps_bytes), bytes as u64);
        frames.iter().for_each(|&frame| self.maps.give_up(frame));
    }

    /// A uniform number in 0 to 1.
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In a fork's child: leaves the parent's region. Live blocks count as live in the child, but
    /// not what the parent allocated before. Copies only constant data from the parent's region,
    /// because the parent keeps writing there.
    fn leave_parents(&mut self) {
        let Some(parents) = self.shared.take() else {
            return;
        };
        if let Some(own) = process::may_query().then(create).flatten() {
            for from_to in [
                MAPS_AT..MAPS_AT + self.maps.written(),
                SITES_AT..site_at(self.sites() as usize),
            ] {
                // SAFETY: two different mappings of the same length. Meanwhile the parent changes
                // single words of the first.
                unsafe {
                    let from = parents.base.as_ptr().add(from_to.start);
                    ptr::copy(from, own.base.as_ptr().add(from_to.start), from_to.len());
                }
            }
            self.shared = Some(own);
            self.write_head();
            // The child samples on at its parent's rate.
            self.set_head(offset_of!(Head, rate), HEAP.sampling());
            self.set_head(offset_of!(Head, began_ms), now_ms());
            self.set_head(offset_of!(Head, changed_ms), now_ms());
            self.set_head(offset_of!(Head, maps_bytes), self.maps.written() as u64);
            self.begin_sums();
            monitor::tell(&own, KIND_PROFILE);
        }
        parents.close();
        // SAFETY: nothing holds its address any longer.
        unsafe { parents.unmap() };
    }

    /// Resets the sums so that exactly the live blocks count as allocated.
    fn begin_sums(&mut self) {
        self.samples = 0;
        for site in 0..self.sites() {
            if let Some(sums) = self.table.sums(site) {
                sums.allocated = sums.live;
            }
            self.write_sums(site);
        }
    }
}

fn create() -> Option<Shared> {
    Shared::create(NAME, BYTES.next_multiple_of(Linux.page_bytes()))
}

fn now_ms() -> u64 {
    process::time_of_day_ns() / 1_000_000
}
