//! Which depot a slab belongs to: the size class of its blocks, who uses them, and on which node.
//!
//! The program's blocks, those of them that the profiler sampled, and the heap's own data (caches
//! and magazine arrays: metadata) lie in slabs of the same kind, but in depots apart. The program's
//! have a depot for each NUMA node. A slab's record holds the number of its depot, so a thread that
//! remembers a slab's former life sees that the slab is another depot's by now, even if the class
//! is the same.

use super::class::{CLASSES, Class};
use crate::os::nodes::{self, MOST_NODES};

/// A depot's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepotId {
    /// The size class of its slabs.
    pub class: Class,
    /// The depot's row: one for each user, then one for the program's blocks on each node after the
    /// first.
    pub(crate) row: u8,
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
const USERS: usize = 3;

/// Depots of a class.
pub(super) const ROWS: usize = USERS + MOST_NODES - 1;

/// Bits of a [code](DepotId::code).
pub(super) const CODE_BITS: u32 = 8 + ROWS.next_power_of_two().trailing_zeros();

/// The least block of metadata, in bytes: callers ask for few sizes, so few slabs serve all.
const LEAST_METADATA: usize = 64;

impl DepotId {
    /// The depot of the program's blocks of `class` on the first node.
    #[inline]
    pub const fn blocks(class: Class) -> DepotId {
        DepotId { class, row: 0 }
    }

    /// The depot of the program's blocks of `class` on the calling thread's node.
    #[inline]
    pub fn near(class: Class) -> DepotId {
        let row = match nodes::current() {
            0 => 0,
            node => USERS - 1 + node,
        };
        DepotId {
            class,
            row: row as u8,
        }
    }

    /// The depot of `class` of this user's blocks on the first node.
    pub(crate) const fn of_user(class: Class, user: User) -> DepotId {
        DepotId {
            class,
            row: user as u8,
        }
    }

    /// The depot of the sampled blocks of `class`.
    pub const fn sampled(class: Class) -> DepotId {
        DepotId::of_user(class, User::Sampled)
    }

    /// The depot of metadata of at least `bytes` bytes (at most 32 KiB).
    pub fn metadata(bytes: usize) -> DepotId {
        DepotId::of_user(Class::serving(bytes.max(LEAST_METADATA)), User::Heap)
    }

    /// Who uses the blocks of its slabs.
    pub fn user(self) -> User {
        const HEAP: u8 = User::Heap as u8;
        const SAMPLED: u8 = User::Sampled as u8;
        match self.row {
            HEAP => User::Heap,
            SAMPLED => User::Sampled,
            _ => User::Program,
        }
    }

    /// All depots, row by row.
    pub fn all() -> impl Iterator<Item = DepotId> {
        core::iter::successors(Some(DepotId::FIRST), |id| id.next())
    }

    /// The first of all.
    pub(super) const FIRST: DepotId = DepotId::blocks(class_at(0));

    /// How many rows are in use with this number of nodes.
    pub(super) fn rows(nodes: usize) -> usize {
        USERS - 1 + nodes
    }

    /// The one after this in the order of [`DepotId::all`].
    pub(super) fn next(self) -> Option<DepotId> {
        let (row, place) = match self.place() + 1 {
            DEPOTS => (self.row + 1, 0),
            place => (self.row, place),
        };
        let class = class_at(place);
        (usize::from(row) < DepotId::rows(nodes::count())).then_some(DepotId { class, row })
    }

    /// Where the depot stands in its row.
    #[inline]
    pub(super) fn place(self) -> usize {
        #[cfg(not(loom))]
        return self.class.index() - 1;
        #[cfg(loom)]
        (0..DEPOTS)
            .find(|&place| class_at(place) == self.class)
            .expect("a class that the models use")
    }

    /// What stands for it in a slab's record, in [`CODE_BITS`] bits; never 0.
    #[inline]
    pub(super) const fn code(self) -> u16 {
        u16::from_le_bytes([self.class.index() as u8, self.row])
    }

    /// The depot that a record's code stands for; `None` for 0.
    #[inline]
    pub(super) fn from_code(code: u16) -> Option<DepotId> {
        let [class, row] = code.to_le_bytes();
        (class != 0).then(|| DepotId {
            class: Class::known(class.into()),
            row,
        })
    }
}

/// Depots of one row.
#[cfg(not(loom))]
pub(super) const DEPOTS: usize = CLASSES;
/// The classes of the models, by the size of their blocks: few enough to explore.
#[cfg(loom)]
const MODELLED: [usize; 3] = [512, 1024, 8192];
#[cfg(loom)]
pub(super) const DEPOTS: usize = MODELLED.len();

/// The class of the depot that stands at `place` in its row.
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
    fn every_depot_has_a_code_of_its_own() {
        let ids: Vec<DepotId> = DepotId::all().collect();
        assert_eq!(ids.len() % CLASSES, 0);
        for &id in &ids {
            assert_eq!(DepotId::from_code(id.code()), Some(id));
        }
        assert_eq!(DepotId::from_code(0), None);
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
