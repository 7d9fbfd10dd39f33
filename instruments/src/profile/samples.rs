//! The live samples: what each sampled block represents, by its address.

use super::table::zeros;
use core::ptr::NonNull;
use neap_heap::os::Os;
use neap_heap::os::linux::Linux;

/// What a sample adds to its site, and its free subtracts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) site: u32,
    /// In [`PARTS`](neap_shared::sites::PARTS).
    pub(super) objects: u64,
    /// Bytes asked for.
    pub(super) bytes: u64,
    /// Usable bytes.
    pub(super) usable: u64,
}

impl Weight {
    /// Objects, requested bytes, usable bytes.
    pub(super) fn amounts(&self) -> [u64; 3] {
        [self.objects, self.bytes, self.usable]
    }
}

/// A sampled block. All zero bytes are a valid one, at address 0: an empty place.
#[derive(Clone, Copy)]
struct Sample {
    address: usize,
    weight: Weight,
}

const NOTHING: Sample = Sample {
    address: 0,
    weight: Weight {
        site: 0,
        objects: 0,
        bytes: 0,
        usable: 0,
    },
};

/// Places of the first table: what fits into an OS page of 4 KiB.
const FEWEST: usize = 64;

/// A hash table with linear probing, of which at most half the places are taken. It doubles, and
/// never shrinks. No tombstones: a removal moves the samples behind it (Knuth, The Art of Computer
/// Programming, volume 3, 6.4, algorithm R).
pub(super) struct Samples {
    places: Option<NonNull<Sample>>,
    /// How many places there are: a power of two, or 0.
    room: usize,
    taken: usize,
}

impl Samples {
    /// A table without memory.
    pub(super) const fn new() -> Samples {
        Samples {
            places: None,
            room: 0,
            taken: 0,
        }
    }

    /// Adds the sample of the block at `address`, which has none. False without memory.
    pub(super) fn insert(&mut self, address: usize, weight: Weight) -> bool {
        if self.taken * 2 >= self.room && !self.grow() {
            return false;
        }
        self.put(Sample { address, weight });
        self.taken += 1;
        true
    }

    /// Takes out the sample of the block at `address`.
    pub(super) fn remove(&mut self, address: usize) -> Option<Weight> {
        let mut gap = self.place_of(address)?;
        let last = self.room - 1;
        let removed = core::mem::replace(self.at(gap), NOTHING);
        if removed.address == 0 {
            return None;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & last;
            let moved = *self.at(at);
            if moved.address == 0 {
                break;
            }
            // Moves into the gap unless its home lies behind the gap.
            let home = home(moved.address) & last;
            if (at.wrapping_sub(home) & last) >= (at.wrapping_sub(gap) & last) {
                *self.at(gap) = moved;
                *self.at(at) = NOTHING;
                gap = at;
            }
        }
        self.taken -= 1;
        Some(removed.weight)
    }

    /// The place of `address`, or the empty one where it belongs; `None` without a table.
    #[inline(never)]
    fn place_of(&mut self, address: usize) -> Option<usize> {
        let last = self.room.checked_sub(1)?;
        let mut at = home(address) & last;
        while ![0, address].contains(&self.at(at).address) {
            at = (at + 1) & last;
        }
        Some(at)
    }

    fn put(&mut self, sample: Sample) {
        if let Some(at) = self.place_of(sample.address) {
            *self.at(at) = sample;
        }
    }

    /// Doubles the table. False without memory.
    fn grow(&mut self) -> bool {
        let room = (self.room * 2).max(FEWEST);
        let Some(places) = zeros(room) else {
            return false;
        };
        let former = core::mem::replace(
            self,
            Samples {
                places: Some(places),
                room,
                taken: self.taken,
            },
        );
        former.close(|sample| self.put(sample));
        true
    }

    /// Gives the memory back, and `each` every sample.
    fn close(mut self, each: impl FnMut(Sample)) {
        let all = (0..self.room).map(|at| *self.at(at));
        all.filter(|sample| sample.address != 0).for_each(each);
        if let Some(places) = self.places {
            let bytes = (self.room * size_of::<Sample>()).next_multiple_of(Linux.page_bytes());
            // SAFETY: what `zeros` reserved for `room` samples; only this table points there.
            unsafe { Linux.unmap(places.cast(), bytes) };
        }
    }

    /// The sample at a place of the table, which must have memory.
    fn at(&mut self, place: usize) -> &mut Sample {
        debug_assert!(place < self.room);
        let places = self.places.unwrap_or(NonNull::dangling());
        // SAFETY: `room` samples, zero at first, which is a valid sample, and only this table
        // points there. Callers take places modulo `room`, which is not 0.
        unsafe { places.add(place).as_mut() }
    }
}

/// A number whose low bits are spread evenly over addresses of blocks (Fibonacci hashing).
fn home(address: usize) -> usize {
    (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn weight(bytes: u64) -> Weight {
        Weight {
            bytes,
            ..NOTHING.weight
        }
    }

    #[test]
    fn samples_are_those_of_a_map() {
        let (mut samples, mut map) = (Samples::new(), BTreeMap::new());
        assert_eq!(samples.remove(16), None);
        let mut state = 1u64;
        for round in 0..200_000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            // Grows, shrinks, and grows again, over addresses that often collide.
            let address = 16 * (1 + (state >> 33) as usize % 5_000);
            if (state >> 20) % 4 < if round / 50_000 % 2 == 0 { 3 } else { 1 } {
                assert_eq!(samples.remove(address), map.insert(address, weight(round)));
                assert!(samples.insert(address, weight(round)));
            } else {
                assert_eq!(samples.remove(address), map.remove(&address), "{round}");
            }
        }
        assert_eq!(samples.taken, map.len());
        assert!(samples.room <= 16_384);
        for (address, weight) in map {
            assert_eq!(samples.remove(address), Some(weight));
        }
        samples.close(|_| panic!("a sample is left"));
    }
}
