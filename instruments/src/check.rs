//! The checking mode (`NEAP_CHECK=1`, `NEAP_HARDEN`): no fast path, and freed blocks wait in
//! quarantine before they are handed out again, so every second free of one of them is detected at
//! once. A block of a slab is filled meanwhile, so a write to it is detected when it leaves, and
//! pages of a large block may be inaccessible ([`neap_heap::harden`], [`neap_heap::large`]).

use bytemuck::Zeroable;
use core::ptr::NonNull;
use neap_heap::base::sync::{AtomicUsize, Ordering};
use neap_heap::cache::heap::{Found, HEAP};
use neap_heap::cache::misuse::{self, Call};
use neap_heap::free::{free_found, start_of};
use neap_heap::harden::{self, Measures, Seal};
use neap_heap::hook;
use neap_heap::large;
use neap_heap::os::late::Late;
use neap_heap::os::lock::{Lock, Rank};
use neap_heap::slab::Slab;
use neap_heap::slab::class::{CLASSES, Class};

/// The most blocks in quarantine.
const PLACES: usize = 8192;
/// The most bytes in quarantine; a larger block passes through at once.
const MOST_BYTES: usize = 64 << 20;
/// Among how many of the newest blocks the order is random.
const SHUFFLED: usize = 64;
/// Slots of the table of addresses: a power of two, half empty when the ring is full.
const SLOTS: usize = PLACES * 2;

static QUARANTINE: Quarantine = Quarantine {
    lock: Lock::new(Rank::Quarantine),
    inner: Late::new(),
    held: [const { AtomicUsize::new(0) }; 3],
};

struct Quarantine {
    lock: Lock,
    /// 256 KiB, mapped when the first block is freed in the checking mode. guarded by: lock
    inner: Late<Inner>,
    /// What is held, for statistics: bytes, and of these bytes and blocks of large ones. Written
    /// under `lock`.
    held: [AtomicUsize; 3],
}

struct Inner {
    /// Oldest first.
    ring: [Waiting; PLACES],
    first: usize,
    count: usize,
    bytes: usize,
    /// Of these, bytes and blocks of large ones.
    large: [usize; 2],
    /// The same addresses, hashed, linear probing; 0 is empty.
    slots: [usize; SLOTS],
}

// SAFETY: integers only, and 0 is a value of each.
unsafe impl Zeroable for Inner {}

/// A block in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    address: usize,
    /// Its bytes, and in the lowest [`CLASS_BITS`] the number of its class, if it has a canary;
    /// otherwise 0.
    bytes_and_class: usize,
}

const CLASS_BITS: u32 = 8;
const _: () = assert!(CLASSES < 1 << CLASS_BITS);

impl Waiting {
    /// A block with a canary.
    #[inline]
    fn sealed(address: usize, class: Class) -> Waiting {
        Waiting {
            address,
            bytes_and_class: class.bytes() << CLASS_BITS | class.index(),
        }
    }

    /// Another block.
    fn open(address: usize, bytes: usize) -> Waiting {
        Waiting {
            address,
            bytes_and_class: bytes << CLASS_BITS,
        }
    }

    fn bytes(self) -> usize {
        self.bytes_and_class >> CLASS_BITS
    }

    fn sealed_class(self) -> Option<Class> {
        let class = self.bytes_and_class % (1 << CLASS_BITS);
        (class != 0).then(|| Class::new(class))
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

/// What waits in quarantine.
pub(crate) fn held() -> Held {
    let [bytes, large_bytes, large_blocks] = QUARANTINE
        .held
        .each_ref()
        .map(|held| held.load(Ordering::Relaxed));
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
        Found::Slab(slab, class) if harden::seal(address, *class) == Seal::Canary => {
            hold_sealed(address, slab, *class)
        }
        _ => hold_open(address, found),
    }
}

/// [`hold`] of a block with a canary, which tells of a second free by itself.
fn hold_sealed(address: usize, slab: &Slab, class: Class) -> bool {
    start_of(Call::Free, slab, class, address);
    let guard = QUARANTINE.lock.lock();
    // SAFETY: the program frees the block; every free in this mode takes the lock.
    unsafe { harden::close_sealed(slab, class, address) };
    let Some(mut inner) = places() else {
        return false;
    };
    // SAFETY: the lock is held.
    let leaving = unsafe { inner.as_mut() }.admit(Waiting::sealed(address, class));
    drop(guard);
    reuse_all(leaving);
    true
}

/// [`hold`] of another block.
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
    if let Found::Large(place) | Found::Sampled(place) = found {
        // For the profile the block is free, although it waits.
        hook::large_freed(place);
    }
    close(found, number);
    if let Found::Large(_) = found {
        inner.large = [inner.large[0] + bytes, inner.large[1] + 1];
    }
    let leaving = inner.admit(Waiting::open(address, bytes));
    drop(guard);
    reuse_all(leaving);
    true
}

/// Where freed blocks wait, if they are to. The caller holds the lock.
#[inline]
fn places() -> Option<NonNull<Inner>> {
    let delays = HEAP.measures().has(Measures::DELAY);
    delays.then(|| QUARANTINE.inner.open()).flatten()
}

/// A block with a canary that has left the quarantine.
struct Leaving {
    address: usize,
    class: Class,
    /// No other has to leave.
    is_last: bool,
}

/// Gives back the block that has left, and those that have to leave after it. Not under the lock,
/// because a magazine that is full gives blocks back to their slabs.
#[inline]
fn reuse_all(mut leaving: Option<Leaving>) {
    while let Some(block) = leaving {
        // SAFETY: freed by the program, and in quarantine since it was closed.
        unsafe { harden::reuse(block.address, block.class) };
        leaving = if block.is_last { None } else { release_more() };
    }
}

/// Lets the oldest blocks go while too many wait, up to the first with a canary, which it returns.
#[cold]
fn release_more() -> Option<Leaving> {
    let _guard = QUARANTINE.lock.lock();
    // SAFETY: the lock is held to the end of this function.
    let inner = unsafe { QUARANTINE.inner.find()?.as_mut() };
    inner.release()
}

/// Takes a block without a canary back, which has left the quarantine.
fn take_back(inner: &mut Inner, oldest: Waiting) {
    let (address, found) = (oldest.address, HEAP.find(oldest.address));
    inner.remove(address);
    match found {
        Found::Large(_) => {
            inner.large = [inner.large[0] - oldest.bytes(), inner.large[1] - 1];
        }
        // SAFETY: in quarantine since it was filled.
        Found::Slab(_, class) => unsafe {
            harden::refuse_written(address, class, harden::seal(address, class));
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
        Found::Large(place) if HEAP.measures().harden() => large::shut(place),
        _ => {}
    }
}

/// The quarantine's lock, for a fork.
pub(super) static LOCK: &Lock = &QUARANTINE.lock;

/// The block's bytes, and its number in its slab; aborts if none starts here.
fn place_of(address: usize, found: &Found) -> (usize, usize) {
    match found {
        Found::Slab(slab, class) => {
            let number = start_of(Call::Free, slab, *class, address);
            (class.bytes(), number)
        }
        Found::Large(place) | Found::Sampled(place) => {
            (large::bytes(Call::Free, place, address), 0)
        }
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

    /// Lets a block wait and the oldest go. Returns what [`release_more`] does.
    #[inline]
    fn admit(&mut self, block: Waiting) -> Option<Leaving> {
        self.push(block);
        if let Some(draw) = harden::random() {
            self.shuffle(draw);
        }
        self.release()
    }

    fn push(&mut self, block: Waiting) {
        self.ring[(self.first + self.count) % PLACES] = block;
        self.count += 1;
        self.bytes += block.bytes();
    }

    /// Exchanges the newest block with one of the newest [`SHUFFLED`], so that the order in which
    /// blocks leave is not that of their frees. Blocks of one slab still leave together: if any two
    /// were exchanged, each free would list another slab in its depot.
    fn shuffle(&mut self, draw: usize) {
        let newest = self.first + self.count - 1;
        let other = newest - draw % self.count.min(SHUFFLED);
        self.ring.swap(newest % PLACES, other % PLACES);
    }

    /// The oldest block.
    fn pop(&mut self) -> Waiting {
        let oldest = self.ring[self.first];
        self.first = (self.first + 1) % PLACES;
        self.count -= 1;
        self.bytes -= oldest.bytes();
        oldest
    }

    fn has_too_many(&self) -> bool {
        self.count == PLACES || self.bytes > MOST_BYTES
    }

    /// As [`release_more`], and tells the statistics what waits then.
    fn release(&mut self) -> Option<Leaving> {
        let leaving = self.next_leaving();
        let [large_bytes, large_blocks] = self.large;
        let now = [self.bytes, large_bytes, large_blocks];
        for (held, now) in QUARANTINE.held.iter().zip(now) {
            held.store(now, Ordering::Relaxed);
        }
        leaving
    }

    fn next_leaving(&mut self) -> Option<Leaving> {
        while self.has_too_many() {
            let oldest = self.pop();
            let Some(class) = oldest.sealed_class() else {
                take_back(self, oldest);
                continue;
            };
            return Some(Leaving {
                address: oldest.address,
                class,
                is_last: !self.has_too_many(),
            });
        }
        None
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

    #[test]
    fn a_block_with_a_canary_waits_with_its_class() {
        for class in Class::all() {
            let waiting = Waiting::sealed(1 << 46, class);
            assert_eq!(waiting.sealed_class(), Some(class));
            assert_eq!((waiting.address, waiting.bytes()), (1 << 46, class.bytes()));
        }
    }

    #[test]
    fn the_table_holds_what_was_put_in_and_not_taken_out() {
        let empty = Inner {
            ring: [Waiting::open(0, 0); PLACES],
            first: 0,
            count: 0,
            bytes: 0,
            large: [0; 2],
            slots: [0; SLOTS],
        };
        let mut inner = std::boxed::Box::new(empty);
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
                inner.push(Waiting::open(address, 16));
                order.push(address);
            } else if order.len() >= PLACES - 1 {
                let oldest = order.remove(0);
                let left = inner.pop();
                assert_eq!((left.address, left.bytes()), (oldest, 16));
                assert_eq!(left.sealed_class(), None);
                inner.remove(oldest);
                model.remove(&oldest);
            }
            assert_eq!(inner.slot_of(address).is_ok(), model.contains(&address));
        }
        assert!(model.iter().all(|&address| inner.slot_of(address).is_ok()));
        assert_eq!(inner.bytes, inner.count * 16);
    }
}
