//! The checking mode (`NEAP_CHECK=1`, `NEAP_HARDEN`). It has no fast path. Freed blocks wait in
//! quarantine before they are handed out again, so every second free of one of them is detected at
//! once. A block of a slab is filled while it waits. A write to it is detected when it leaves the
//! quarantine, or, with `zero` and a canary, when it is handed out again. The pages of a large
//! block may be inaccessible while it waits ([`neap_heap::watched::fences`]).

use crate::lines::{LINES, Lines, PLACES, Ring, line_of};
use bytemuck::Zeroable;
use core::ptr::{self, NonNull};
use neap_heap::base::sync::{AtomicUsize, Ordering};
use neap_heap::cache::heap::{Found, HEAP};
use neap_heap::cache::misuse::{self, Call};
use neap_heap::cache::thread_cache::Blocks;
use neap_heap::hook;
use neap_heap::init::entered;
use neap_heap::os::areas::Late;
use neap_heap::os::lock::{Lock, Rank};
use neap_heap::slab::Slab;
use neap_heap::slab::class::Class;
use neap_heap::watched::calls::free_found;
use neap_heap::watched::fences;
use neap_heap::watched::harden::{self, Measures};
use neap_heap::watched::seal::{self, Seal};

/// The most bytes of blocks without canaries. A larger block passes through at once.
const MOST_BYTES: usize = 64 << 20;
/// The most large blocks, each of which takes 64 KiB of address space or more.
const MOST_LARGE: usize = 1024;
/// Among how many of the newest blocks the order is random.
const SHUFFLED: usize = 64;
/// Slots of the table of addresses in `open`: a power of two, half empty when that ring is full.
const SLOTS: usize = PLACES * 2;

static QUARANTINE: Quarantine = Quarantine {
    lock: Lock::new(Rank::Quarantine),
    inner: Late::new(),
    held: [const { AtomicUsize::new(0) }; 3],
};

/// The blocks with canaries.
static SEALED: Lines = Lines::new();

/// The blocks without canaries.
struct Quarantine {
    lock: Lock,
    /// 256 KiB, mapped when the first block is freed in the checking mode. guarded by: lock
    inner: Late<Inner>,
    /// For statistics: the bytes of these blocks, the bytes of the large ones, and the number of
    /// these. Written under `lock`.
    held: [AtomicUsize; 3],
}

struct Inner {
    /// Blocks without canaries, and their bytes.
    open: Ring<OpenBlock, PLACES>,
    open_bytes: usize,
    /// The bytes and the number of the large blocks in `open`.
    large: [usize; 2],
    /// The addresses in `open`, hashed, linear probing; 0 is empty.
    slots: [usize; SLOTS],
}

// SAFETY: integers only, and 0 is a value of each.
unsafe impl Zeroable for Inner {}

/// A block without a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenBlock {
    address: usize,
    bytes: usize,
}

impl Ring<OpenBlock, PLACES> {
    /// If choices are random, exchanges the newest block with one of the newest [`SHUFFLED`], so
    /// that the order in which blocks leave is not that of their frees. Blocks of one slab still
    /// leave together: if any two were exchanged, each free would list another slab in its depot.
    /// The other block is in the newer half, because the oldest blocks may leave at once.
    fn shuffle(&mut self) {
        if let Some(draw) = harden::random().filter(|_| self.count > 1) {
            let newest = self.first + self.count - 1;
            let other = newest - draw % (self.count / 2).min(SHUFFLED);
            self.places.swap(newest % PLACES, other % PLACES);
        }
    }
}

/// What waits in quarantine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Bytes of all blocks.
    pub(super) bytes: usize,
    /// Of these, bytes of large blocks.
    pub(super) large_bytes: usize,
    /// How many of them are large.
    pub(super) large_blocks: usize,
}

/// What waits in quarantine, and on its way there in the caches of threads.
pub(crate) fn held() -> Held {
    let [mut bytes, large_bytes, large_blocks] = QUARANTINE
        .held
        .each_ref()
        .map(|held| held.load(Ordering::Relaxed));
    bytes += SEALED.bytes();
    if harden::is_on() {
        HEAP.registry.for_each(|cache| {
            let waiting = cache.open_other().map(|open| open.waiting_bytes());
            bytes += waiting.unwrap_or(0);
        });
    }
    Held {
        bytes,
        large_bytes: large_bytes.min(bytes),
        large_blocks,
    }
}

/// Whether a block is in quarantine.
pub(crate) fn holds(address: usize) -> bool {
    let _guard = QUARANTINE.lock.lock();
    // SAFETY: the lock is held.
    let holds = |inner: NonNull<Inner>| unsafe { inner.as_ref() }.slot_of(address).is_ok();
    QUARANTINE.inner.find().is_some_and(holds)
}

/// Puts a freed block into quarantine and lets the oldest go. Aborts on a second free. False if
/// nothing waits, because freed blocks are not to, or because there is no memory to note them.
pub(super) fn hold(address: usize, found: &Found) -> bool {
    match found {
        Found::Guarded => false,
        Found::Slab(slab, class) if seal::of(address, *class) == Seal::Canary => {
            hold_sealed(address, slab, *class)
        }
        _ => hold_open(address, found),
    }
}

/// [`hold`] of a block with a canary, which shows a second free.
fn hold_sealed(address: usize, slab: &Slab, class: Class) -> bool {
    misuse::start_of(Call::Free, slab, class, address);
    // SAFETY: the program frees the block.
    unsafe { harden::close_sealed(address, class) };
    let mut blocks = Blocks::none();
    blocks.push(address, class);
    // SAFETY: as above.
    unsafe { hold_back(&blocks) }
}

/// Puts freed blocks with canaries into quarantine, and lets the oldest leave. False as for
/// [`hold`].
///
/// # Safety
/// - The program freed these blocks, and nothing uses them any more.
pub(super) unsafe fn hold_back(blocks: &Blocks) -> bool {
    let line = entered().map_or(0, |cache| line_of(ptr::from_ref(cache).addr()));
    // SAFETY: freed by the program, and in quarantine since they were closed.
    let leave = |blocks: &Blocks| unsafe { harden::reuse_all(blocks) };
    HEAP.measures().has(Measures::DELAY) && SEALED.admit(line, blocks, &leave)
}

/// [`hold`] of a block without a canary.
#[inline(never)]
fn hold_open(address: usize, found: &Found) -> bool {
    let (bytes, number) = place_of(address, found);
    let guard = QUARANTINE.lock.lock();
    let Some(mut inner) = places() else {
        close(found, number);
        return false;
    };
    // SAFETY: the lock is held to the end of its use.
    let inner = unsafe { inner.as_mut() };
    if !inner.insert(address) {
        misuse::double_free(address, bytes);
    }
    // For the profile the block is free, although it waits.
    match found {
        Found::Large(place) => hook::large_freed(place),
        Found::Sampled(..) => hook::sampled_freed(address),
        _ => {}
    }
    close(found, number);
    if let Found::Large(_) = found {
        inner.large = [inner.large[0] + bytes, inner.large[1] + 1];
    }
    inner.admit_open(OpenBlock { address, bytes });
    drop(guard);
    true
}

/// Where freed blocks wait, if they are to. The caller holds the lock.
#[inline]
fn places() -> Option<NonNull<Inner>> {
    let delays = HEAP.measures().has(Measures::DELAY);
    delays.then(|| QUARANTINE.inner.open()).flatten()
}

/// Takes a block without a canary back, which has left the quarantine.
fn take_back(inner: &mut Inner, oldest: OpenBlock) {
    let (address, found) = (oldest.address, HEAP.find(oldest.address));
    inner.remove(address);
    match found {
        Found::Large(_) => {
            inner.large = [inner.large[0] - oldest.bytes, inner.large[1] - 1];
        }
        // SAFETY: in quarantine since it was filled.
        Found::Slab(_, class) => unsafe {
            harden::refuse_written(address, class, seal::of(address, class));
        },
        _ => {}
    }
    // SAFETY: freed by the program, and in quarantine since.
    unsafe { free_found(address, found) };
}

/// Takes a block that is not in quarantine, and has no canary, out of the program's hands: that of
/// this number, if it is of a slab.
fn close(found: &Found, number: usize) {
    match found {
        // SAFETY: the program frees the block.
        Found::Slab(slab, class) => unsafe { harden::close(slab, *class, number) },
        Found::Large(place) if HEAP.measures().harden() => fences::shut(place),
        _ => {}
    }
}

/// How many locks the quarantine has.
pub(super) const LOCKS: usize = 1 + LINES;

/// One of the quarantine's locks, for a fork.
pub(super) const fn lock(number: usize) -> &'static Lock {
    match number {
        0 => &QUARANTINE.lock,
        _ => SEALED.lock(number - 1),
    }
}

/// The block's bytes, and its number in its slab; aborts if none starts here.
fn place_of(address: usize, found: &Found) -> (usize, usize) {
    match found {
        Found::Slab(slab, class) => {
            let number = misuse::start_of(Call::Free, slab, *class, address);
            (class.bytes(), number)
        }
        Found::Sampled(slab, class) => {
            let number = misuse::start_of(Call::Free, slab, *class, address);
            if slab.is_free(*class, number) {
                misuse::double_free(address, class.bytes());
            }
            (class.bytes(), number)
        }
        Found::Large(place) => (fences::bytes(Call::Free, place, address), 0),
        Found::Foreign => misuse::foreign(Call::Free, address),
        Found::NoBlock | Found::Stack | Found::Guarded => misuse::no_block(Call::Free, address),
    }
}

impl Inner {
    /// The slot that holds `address`, or the free one where it would go.
    fn slot_of(&self, address: usize) -> Result<usize, usize> {
        let mut slot = home(address);
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                held if held == address => return Ok(slot),
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }

    /// False if the address is there already.
    fn insert(&mut self, address: usize) -> bool {
        match self.slot_of(address) {
            Ok(_) => false,
            Err(slot) => {
                self.slots[slot] = address;
                true
            }
        }
    }

    /// Takes an address out and closes the gap, so that every probe still finds what it looks for.
    fn remove(&mut self, address: usize) {
        let Ok(mut gap) = self.slot_of(address) else {
            return;
        };
        let mut slot = gap;
        loop {
            slot = (slot + 1) % SLOTS;
            let held = self.slots[slot];
            if held == 0 {
                break;
            }
            let from_home = |place: usize| (place + SLOTS - home(held)) % SLOTS;
            if from_home(gap) < from_home(slot) {
                self.slots[gap] = held;
                gap = slot;
            }
        }
        self.slots[gap] = 0;
    }

    /// Lets a block without a canary wait, and takes the oldest back.
    fn admit_open(&mut self, block: OpenBlock) {
        self.open_bytes += block.bytes;
        let mut leaving = self.open.push(block);
        self.open.shuffle();
        loop {
            if let Some(oldest) = leaving {
                self.open_bytes -= oldest.bytes;
                take_back(self, oldest);
            }
            if self.open_bytes <= MOST_BYTES && self.large[1] <= MOST_LARGE {
                break;
            }
            leaving = self.open.pop().copied();
        }
        self.tell();
    }

    /// Tells the statistics what waits.
    fn tell(&self) {
        let [large_bytes, large_blocks] = self.large;
        let now = [self.open_bytes, large_bytes, large_blocks];
        for (held, now) in QUARANTINE.held.iter().zip(now) {
            held.store(now, Ordering::Relaxed);
        }
    }
}

fn home(address: usize) -> usize {
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SLOTS.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn new_inner() -> std::boxed::Box<Inner> {
        std::boxed::Box::new(Inner::zeroed())
    }

    #[test]
    fn the_table_holds_what_was_put_in_and_not_taken_out() {
        let mut inner = new_inner();
        let mut model = BTreeSet::new();
        let mut state = 1usize;
        let mut order = Vec::new();
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let address = (state >> 40) / 16 * 16 + 16;
            if order.len() < PLACES - 1 && inner.insert(address) {
                assert!(model.insert(address));
                order.push(address);
            } else if order.len() >= PLACES - 1 {
                let oldest = order.remove(0);
                inner.remove(oldest);
                model.remove(&oldest);
            }
            assert_eq!(inner.slot_of(address).is_ok(), model.contains(&address));
        }
        assert!(model.iter().all(|&address| inner.slot_of(address).is_ok()));
    }
}
