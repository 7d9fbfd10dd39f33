//! Exactly known allocations, place by place, to compare with the sampling profiler. At the end the
//! process reads its own region, and reports both.

use anyhow::{Context as _, ensure};
use neap_shared::sites::{self, Head, PARTS, Site};
use serde::{Deserialize, Serialize};

use super::heap;
use crate::names::named;
use crate::run::needed;
use crate::status;

named! {
    /// What happens to a place's blocks.
    pub enum Part {
        /// All stay live.
        Kept = "kept",
        /// All are freed.
        Freed = "freed",
        /// Every second one is freed.
        Half = "half",
    }
}

impl Part {
    /// Whether block `number` stays live.
    pub fn keeps(self, number: usize) -> bool {
        match self {
            Part::Kept => true,
            Part::Freed => false,
            Part::Half => number.is_multiple_of(2),
        }
    }
}

/// The number of blocks of `size` bytes for about `bytes`: even, at least four.
fn objects_of(size: usize, bytes: usize) -> usize {
    (bytes / size).max(4).next_multiple_of(2)
}

/// Objects and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Objects; fractional in an estimate.
    pub objects: f64,
    /// Requested bytes.
    pub bytes: f64,
    /// Usable bytes.
    pub usable: f64,
}

impl Totals {
    fn add(&mut self, objects: u64, bytes: u64, usable: u64) {
        self.objects += objects as f64 / PARTS as f64;
        self.bytes += bytes as f64;
        self.usable += usable as f64;
    }
}

/// The truth and the profile's figures, either of all allocations or of the live blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    pub truth: Totals,
    pub told: Totals,
}

/// What a place allocated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Requested bytes of a block.
    pub size: usize,
    /// What happened to the blocks.
    pub part: Part,
    /// Usable bytes of a block.
    pub usable: usize,
    pub allocated: Side,
    pub live: Side,
}

impl Reading {
    /// A place that allocated `objects` blocks, without the profile's figures yet.
    pub fn of(size: usize, part: Part, objects: usize, usable: usize) -> Reading {
        let side = |objects: usize| Side {
            truth: Totals {
                objects: objects as f64,
                bytes: (objects * size) as f64,
                usable: (objects * usable) as f64,
            },
            told: Totals::default(),
        };
        let live = (0..objects).filter(|&number| part.keeps(number)).count();
        let (allocated, live) = (side(objects), side(live));
        Reading {
            size,
            part,
            usable,
            allocated,
            live,
        }
    }

    fn add(&mut self, site: &Site) {
        let (allocated, live) = (&mut self.allocated.told, &mut self.live.told);
        allocated.add(site.alloc_objects, site.alloc_bytes, site.alloc_usable);
        live.add(site.live_objects, site.live_bytes, site.live_usable);
    }
}

/// All sites of a worker's report.
///
/// # Errors
/// If a line is damaged, or sites are missing.
pub fn readings(report: &str) -> anyhow::Result<Vec<Reading>> {
    let readings: Vec<Reading> = serde_json::from_str(needed(report, "sites")?)?;
    let count = readings.len();
    ensure!(count == PLACES, "the worker told {count} sites");
    Ok(readings)
}

/// Live blocks before some of them are freed.
const CHUNK: usize = 64;

/// A place that allocates, and its allocations.
struct CallSite {
    size: usize,
    part: Part,
    allocate: fn(usize) -> usize,
}

/// A separate function for each size and part, so that each is a site of its own.
fn place<const SIZE: usize, const PART: usize>() -> CallSite {
    CallSite {
        size: SIZE,
        part: Part::ALL[PART],
        allocate: allocate::<SIZE, PART>,
    }
}

fn places_of<const SIZE: usize>() -> [CallSite; 3] {
    [place::<SIZE, 0>(), place::<SIZE, 1>(), place::<SIZE, 2>()]
}

fn places() -> Vec<CallSite> {
    let small = [places_of::<8>(), places_of::<24>(), places_of::<100>()];
    let medium = [
        places_of::<1_000>(),
        places_of::<4_096>(),
        places_of::<30_000>(),
    ];
    let large = [
        places_of::<100_000>(),
        places_of::<1_000_000>(),
        places_of::<10_000_000>(),
    ];
    [small, medium, large]
        .into_iter()
        .flatten()
        .flatten()
        .collect()
}

/// The number of places: nine sizes, each with every part.
pub const PLACES: usize = 9 * Part::ALL.len();

/// Allocates `count` blocks, frees the part's share of them, and returns one block's usable bytes.
#[inline(never)]
fn allocate<const SIZE: usize, const PART: usize>(count: usize) -> usize {
    let mut usable = 0;
    let mut left = count;
    while left > 0 {
        let number = left.min(CHUNK);
        let mut chunk = [std::ptr::null_mut(); CHUNK];
        for block in &mut chunk[..number] {
            *block = heap::malloc(SIZE);
            assert!(!block.is_null(), "no memory for {SIZE} bytes");
        }
        // SAFETY: the block is live.
        usable = unsafe { libc::malloc_usable_size(chunk[0].cast()) };
        for (at, &block) in chunk[..number].iter().enumerate() {
            if !Part::ALL[PART].keeps(at) {
                // SAFETY: taken above, and freed once.
                unsafe { heap::free(block) };
            }
        }
        left -= number;
    }
    usable
}

/// Allocates about `bytes` at each place, and reports the profiler's figures for them.
///
/// # Errors
/// If the process has no profile region, or it cannot be read.
pub fn tell(bytes: usize) -> anyhow::Result<String> {
    let places = places();
    let reading = |&CallSite {
                       size,
                       part,
                       allocate,
                   }: &CallSite| {
        let objects = objects_of(size, bytes);
        Reading::of(size, part, objects, allocate(objects))
    };
    let mut readings: Vec<Reading> = places.iter().map(reading).collect();
    let region = status::open("self", sites::NAME).context("this process has no profile")?;
    status::ensure_words(&region, sites::MAGIC, sites::VERSION)?;
    let head: Head = status::read(&region, 0)?;
    for index in 0..head.sites as usize {
        let site: Site = status::read(&region, sites::site_at(index))?;
        if let Some(at) = place_of(&places, &site) {
            readings[at].add(&site);
        }
    }
    let (sites, rate, dropped) = (serde_json::to_string(&readings)?, head.rate, head.dropped);
    Ok(format!("sites={sites}\nrate={rate}\ndropped={dropped}\n"))
}

/// An upper bound of the length of a place's code.
const LONGEST: usize = 4 << 10;

/// The place that contains a site's innermost frame in this program. Frames of the allocator are
/// far away.
fn place_of(places: &[CallSite], site: &Site) -> Option<usize> {
    let depth = (site.depth as usize).min(sites::FRAMES);
    site.frames[..depth].iter().find_map(|&frame| {
        let offset = |place: &CallSite| (frame as usize).wrapping_sub(place.allocate as usize);
        let (at, nearest) = places
            .iter()
            .map(offset)
            .enumerate()
            .min_by_key(|&(_, offset)| offset)?;
        (nearest < LONGEST).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_comes_back_as_it_was() {
        let mut reading = Reading::of(24, Part::Half, 10, 32);
        let site = Site {
            alloc_objects: PARTS * 11 + PARTS / 2,
            alloc_bytes: 276,
            live_usable: 5,
            ..Site::default()
        };
        reading.add(&site);
        assert_eq!(reading.allocated.told.objects, 11.5);
        let line = format!(
            "sites={}",
            serde_json::to_string(&vec![reading; PLACES]).unwrap()
        );
        assert_eq!(readings(&line).unwrap(), [reading; PLACES]);
        let few = format!("sites={}", serde_json::to_string(&[reading]).unwrap());
        assert!(readings(&few).is_err() && readings("sites=[{}]").is_err());
        assert!(readings("heap=/x").is_err());
    }

    #[test]
    fn the_truth_is_what_each_part_keeps() {
        let live = |part| Reading::of(100, part, 20, 112).live.truth;
        assert_eq!(live(Part::Kept).objects, 20.0);
        assert_eq!(live(Part::Freed), Totals::default());
        let half = live(Part::Half);
        assert_eq!(
            (half.objects, half.bytes, half.usable),
            (10.0, 1_000.0, 1_120.0)
        );
        assert_eq!(objects_of(10_000_000, 1), 4);
        assert_eq!(places().len(), PLACES);
    }
}
