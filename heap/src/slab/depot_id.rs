//! Which depot a slab belongs to: the size class of its blocks, and who uses them.
//!
//! The program's blocks, those of them that the profiler sampled, and the heap's own data (caches
//! and magazine arrays: metadata) lie in slabs of the same kind, but in depots apart. A slab's
//! record holds the number of its depot, so a thread that remembers a slab's former life sees that
//! the slab is another depot's by now, even if the class is the same.

use super::class::{CLASSES, Class};

/// A depot's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepotId {
    /// The size class of its slabs.
    pub class: Class,
    /// Who uses their blocks.
    pub user: User,
}

/// Who uses the blocks of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The program. The slices have the tag of their class.
    Program,
    /// The heap. The slices have no tag, so `free` refuses their addresses.
    Heap,
    /// The program; each of the blocks was sampled. The slices have a tag that sends `free` to its
    /// slow path.
    Sampled,
}

/// How many users there are.
pub(super) const USERS: usize = 3;

const _: () = assert!(CLASSES * USERS <= u8::MAX as usize);

/// The [byte](DepotId::byte) of the last one.
const LAST: u8 = (CLASSES * USERS) as u8;

/// The least block of metadata, in bytes: callers ask for few sizes, so few slabs serve all.
const LEAST_METADATA: usize = 64;

impl DepotId {
    /// The depot of the program's blocks of `class`.
    #[inline]
    pub const fn blocks(class: Class) -> DepotId {
        DepotId {
            class,
            user: User::Program,
        }
    }

    /// The depot of the sampled blocks of `class`.
    pub const fn sampled(class: Class) -> DepotId {
        DepotId {
            class,
            user: User::Sampled,
        }
    }

    /// The depot of metadata of at least `bytes` bytes (at most 32 KiB).
    pub fn metadata(bytes: usize) -> DepotId {
        DepotId {
            class: Class::serving(bytes.max(LEAST_METADATA)),
            user: User::Heap,
        }
    }

    /// All depots: the program's, those of metadata, then those of sampled blocks.
    pub fn all() -> impl Iterator<Item = DepotId> {
        core::iter::successors(Some(DepotId::FIRST), |id| id.next())
    }

    /// The first of all.
    pub(super) const FIRST: DepotId = DepotId::blocks(class_at(0));

    /// The one after this in the order of [`DepotId::all`].
    pub(super) fn next(self) -> Option<DepotId> {
        let mut after = (self.byte() + 1..=LAST).filter_map(DepotId::from_byte);
        after.find(|id| cfg!(not(loom)) || (0..DEPOTS).any(|place| class_at(place) == id.class))
    }

    /// Where the depot stands among those of its user.
    #[inline]
    pub(super) fn place(self) -> usize {
        #[cfg(not(loom))]
        return self.class.index() - 1;
        #[cfg(loom)]
        (0..DEPOTS)
            .find(|&place| class_at(place) == self.class)
            .expect("a class that the models use")
    }

    /// What stands for it in a slab's record; never 0.
    pub(super) const fn byte(self) -> u8 {
        (self.user as usize * CLASSES + self.class.index()) as u8
    }

    /// The depot that a record's byte stands for; `None` for 0.
    #[inline]
    pub(super) fn from_byte(byte: u8) -> Option<DepotId> {
        let (user, before) = match byte as usize {
            0 => return None,
            1..=CLASSES => (User::Program, 0),
            byte if byte <= 2 * CLASSES => (User::Heap, CLASSES),
            _ => (User::Sampled, 2 * CLASSES),
        };
        Some(DepotId {
            class: Class::known(byte as usize - before),
            user,
        })
    }
}

/// Depots of one user.
#[cfg(not(loom))]
pub(super) const DEPOTS: usize = CLASSES;
/// The classes of the models, by the size of their blocks: few enough to explore.
#[cfg(loom)]
const MODELLED: [usize; 3] = [512, 1024, 8192];
#[cfg(loom)]
pub(super) const DEPOTS: usize = MODELLED.len();

/// The class of the depot that stands at `place` among those of its user.
const fn class_at(place: usize) -> Class {
    #[cfg(not(loom))]
    return Class::known(place + 1);
    #[cfg(loom)]
    Class::of_size(MODELLED[place])
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cache::bounds::array_bytes;
    use crate::cache::heap::{Found, HEAP};
    use crate::pages::Use;
    use std::vec::Vec;

    /// Slices in use for metadata.
    fn slices() -> usize {
        HEAP.pages.totals().by_use[Use::Meta as usize - 1].slices
    }

    #[test]
    fn every_depot_has_a_byte_of_its_own() {
        let ids: Vec<DepotId> = DepotId::all().collect();
        assert_eq!(ids.len(), USERS * CLASSES);
        for &id in &ids {
            assert_eq!(DepotId::from_byte(id.byte()), Some(id));
        }
        assert_eq!(DepotId::from_byte(0), None);
        assert!(ids.windows(2).all(|pair| pair[0].next() == Some(pair[1])));
    }

    #[test]
    fn an_array_takes_little_more_than_its_entries_and_guard() {
        for room in (4..12).map(|bits| 1 << bits) {
            let bytes = array_bytes(room);
            let taken = DepotId::metadata(bytes).class.bytes();
            assert!(taken - bytes <= bytes / 7, "{bytes} take {taken}");
        }
    }

    /// Whether 1,000 blocks of 8 KiB take about as many slices as they fill, and give most of them
    /// back. Other tests start and end threads meanwhile, which have metadata too.
    fn slices_come_and_go() -> bool {
        let before = slices();
        let blocks: Vec<_> = (0..1000)
            .map(|_| HEAP.take_meta(8 << 10).expect("memory"))
            .collect();
        let taken = slices();
        for &block in &blocks {
            assert!(matches!(HEAP.find(block.addr().get()), Found::NoBlock));
        }
        for block in blocks {
            // SAFETY: taken above with the same number of bytes.
            unsafe { HEAP.give_meta(block, 8 << 10) };
        }
        taken >= before + 1000 / 8 - 8 && slices() < before + 100
    }

    #[test]
    fn slices_without_metadata_go_back_to_the_page_heap() {
        assert!((0..100).any(|_| slices_come_and_go()));
    }
}
