//! Which parts of slabs, or of their OS pages, are live: the input of merging.

use std::collections::BTreeMap;

use anyhow::ensure;

/// The OS page under study; the machine's own may be larger.
pub const PAGE: usize = 4 << 10;
/// One of Neap's slabs, aligned to its size.
pub const SLAB: usize = 64 << 10;
/// Blocks begin and end at multiples of this many bytes.
const GRANULE: usize = 16;

/// A live block of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its first byte.
    pub address: usize,
    /// Bytes of its size class.
    pub bytes: usize,
}

/// The block at `start`, by the library that allocated it.
///
/// # Errors
/// If it is not a block of one of Neap's slabs.
pub fn live(start: *mut u8) -> anyhow::Result<Live> {
    // SAFETY: the block is live.
    let bytes = unsafe { libc::malloc_usable_size(start.cast()) };
    let (address, offset) = (start.addr(), start.addr() % SLAB);
    let stands = bytes.is_multiple_of(GRANULE) && offset.is_multiple_of(bytes);
    ensure!(
        stands && bytes <= SLAB / 2,
        "{bytes} bytes at {address:#x} are no block of a slab of Neap's"
    );
    Ok(Live { address, bytes })
}

/// One or more slabs or pages on one physical one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The addresses that map it; its bytes are those of the first.
    pub mapped: Vec<usize>,
    /// A set bit marks a live granule.
    pub bits: Vec<u64>,
}

impl Unit {
    fn at(address: usize, grain: usize) -> Unit {
        Unit {
            mapped: vec![address],
            bits: vec![0; grain / GRANULE / 64],
        }
    }

    fn mark(&mut self, granule: usize) {
        self.bits[granule / 64] |= 1 << (granule % 64);
    }

    /// How many of its OS pages hold a live block.
    pub fn pages_in_use(&self) -> usize {
        let pages = self.bits.chunks(PAGE / GRANULE / 64);
        pages
            .filter(|bits| bits.iter().any(|&word| word != 0))
            .count()
    }

    /// Whether no granule is live in both.
    pub fn fits(&self, other: &Unit) -> bool {
        self.bits.iter().zip(&other.bits).all(|(a, b)| a & b == 0)
    }

    /// Absorbs a unit that fits; returns the live bytes that would be copied.
    pub fn merge(&mut self, other: Unit) -> usize {
        let granules: u32 = other.bits.iter().map(|word| word.count_ones()).sum();
        self.mapped.extend(other.mapped);
        self.bits
            .iter_mut()
            .zip(other.bits)
            .for_each(|(a, b)| *a |= b);
        granules as usize * GRANULE
    }
}

/// Units that may share a page: of one class, with blocks at the same offsets. If the block size is
/// no power of two, a slab's pages begin inside a block at different offsets, which must be equal.
pub type Group = Vec<Unit>;

/// Every unit of `grain` bytes with a live block. Empty units are given back whole.
pub fn groups(live: &[Live], grain: usize) -> Vec<Group> {
    let mut groups: BTreeMap<(usize, usize), BTreeMap<usize, Unit>> = BTreeMap::new();
    for block in live {
        for address in (block.address..block.address + block.bytes).step_by(GRANULE) {
            let unit = address - address % grain;
            let key = (block.bytes, unit % SLAB % block.bytes);
            let group = groups.entry(key).or_default();
            let unit = group.entry(unit).or_insert_with(|| Unit::at(unit, grain));
            unit.mark(address % grain / GRANULE);
        }
    }
    let group = |group: BTreeMap<usize, Unit>| group.into_values().collect();
    groups.into_values().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 8 * SLAB;

    fn live(offset: usize, bytes: usize) -> Live {
        let address = BASE + offset;
        Live { address, bytes }
    }

    #[test]
    fn a_block_across_two_pages_is_in_both() {
        let groups = groups(&[live(4_080, 48)], PAGE);
        // 4,096 is 16 over a multiple of 48.
        let of = |at: usize| groups[at][0].clone();
        assert_eq!(groups.len(), 2);
        assert_eq!(of(0).mapped, [BASE]);
        assert_eq!(of(0).bits, [0, 0, 0, 1 << 63]);
        assert_eq!(of(1).mapped, [BASE + PAGE]);
        assert_eq!(of(1).bits, [3, 0, 0, 0]);
    }

    #[test]
    fn pages_share_a_group_only_where_blocks_stand_alike() {
        let of_one_class = [live(0, 48), live(PAGE + 32, 48), live(3 * PAGE, 48)];
        let sizes: Vec<usize> = groups(&of_one_class, PAGE).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1]);
        assert_eq!(groups(&[live(0, 64), live(SLAB, 48)], PAGE).len(), 2);
        assert_eq!(groups(&of_one_class, SLAB), groups(&of_one_class, SLAB));
        assert_eq!(groups(&of_one_class, SLAB)[0].len(), 1);
    }

    #[test]
    fn what_overlaps_does_not_fit() {
        let all = [live(0, 64), live(SLAB, 64), live(2 * SLAB + 64, 64)];
        let mut units = groups(&all, SLAB).remove(0);
        assert!(!units[0].fits(&units[1]) && units[0].fits(&units[2]));
        let last = units.remove(2);
        assert_eq!(units[0].merge(last), 64);
        assert_eq!(units[0].mapped, [BASE, BASE + 2 * SLAB]);
        assert_eq!(units[0].bits[0], 0xff);
        assert_eq!(units[0].pages_in_use(), 1);
    }
}
