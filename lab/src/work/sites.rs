//! Exactly known allocations, place by place, to compare with the sampling profiler. At the end the
//! process reads its own region, and reports both.

use std::fs::File;

use anyhow::{Context as _, ensure};
use neap_shared::sites::{self, Head, PARTS, Site};
use serde::{Deserialize, Serialize};

use super::heap;
use crate::names::named;
use crate::run::needed;
use crate::status;

/// The sizes in bytes, one place per size and part.
pub const SIZES: [usize; 9] = [
    8, 24, 100, 1_000, 4_096, 30_000, 100_000, 1_000_000, 10_000_000,
];

named! {
    /// What happens to a place's blocks.
    #[derive(Serialize, Deserialize)]
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

    /// The number of blocks for about `bytes`: even, at least four.
    pub fn objects(self, size: usize, bytes: usize) -> usize {
        (bytes / size).max(4).next_multiple_of(2)
    }

    /// How many of `objects`, an even number, stay live.
    pub fn live(self, objects: usize) -> usize {
        match self {
            Part::Kept => objects,
            Part::Freed => 0,
            Part::Half => objects / 2,
        }
    }
}

/// The allocations of a place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownSite {
    /// Requested bytes of a block.
    pub size: usize,
    /// What happened to the blocks.
    pub part: Part,
    /// The number of blocks.
    pub objects: usize,
    /// Usable bytes of a block.
    pub usable: usize,
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

impl KnownSite {
    /// The truth about `objects` of its blocks.
    fn totals(&self, objects: usize) -> Totals {
        Totals {
            objects: objects as f64,
            bytes: (objects * self.size) as f64,
            usable: (objects * self.usable) as f64,
        }
    }

    /// The truth about all allocations.
    pub fn allocated(&self) -> Totals {
        self.totals(self.objects)
    }

    /// The truth about live blocks.
    pub fn live(&self) -> Totals {
        self.totals(self.part.live(self.objects))
    }
}

/// The truth and an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The truth.
    pub known: KnownSite,
    /// The profile's figures for all allocations.
    pub allocated: Totals,
    /// The profile's figures for live blocks.
    pub live: Totals,
}

impl Reading {
    /// A reading without profile figures yet.
    pub fn of(known: KnownSite) -> Reading {
        Reading {
            known,
            allocated: Totals::default(),
            live: Totals::default(),
        }
    }

    /// Adds a site's figures.
    pub fn add(&mut self, site: &Site) {
        let add = |to: &mut Totals, objects: u64, bytes: u64, usable: u64| {
            to.objects += objects as f64 / PARTS as f64;
            to.bytes += bytes as f64;
            to.usable += usable as f64;
        };
        add(
            &mut self.allocated,
            site.alloc_objects,
            site.alloc_bytes,
            site.alloc_usable,
        );
        add(
            &mut self.live,
            site.live_objects,
            site.live_bytes,
            site.live_usable,
        );
    }
}

/// All sites of a worker's report.
///
/// # Errors
/// If a line is damaged, or sites are missing.
pub fn readings(report: &str) -> anyhow::Result<Vec<Reading>> {
    let readings: Vec<Reading> = serde_json::from_str(needed(report, "sites")?)?;
    let count = readings.len();
    ensure!(
        count == SIZES.len() * Part::ALL.len(),
        "the worker told {count} sites"
    );
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
    let all = [
        places_of::<{ SIZES[0] }>(),
        places_of::<{ SIZES[1] }>(),
        places_of::<{ SIZES[2] }>(),
        places_of::<{ SIZES[3] }>(),
        places_of::<{ SIZES[4] }>(),
        places_of::<{ SIZES[5] }>(),
        places_of::<{ SIZES[6] }>(),
        places_of::<{ SIZES[7] }>(),
        places_of::<{ SIZES[8] }>(),
    ];
    all.into_iter().flatten().collect()
}

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
    let mut readings: Vec<Reading> = Vec::new();
    let places = places();
    for place in &places {
        let objects = place.part.objects(place.size, bytes);
        let usable = (place.allocate)(objects);
        readings.push(Reading::of(KnownSite {
            size: place.size,
            part: place.part,
            objects,
            usable,
        }));
    }
    let region = status::open("self", sites::NAME).context("this process has no profile")?;
    status::ensure_words(&region, sites::MAGIC, sites::VERSION)?;
    let head: Head = status::read(&region, 0)?;
    for site in (0..head.sites as usize).map(|index| site(&region, index)) {
        let site = site?;
        if let Some(at) = place_of(&places, &site) {
            readings[at].add(&site);
        }
    }
    let sites = serde_json::to_string(&readings)?;
    let Head {
        rate,
        dropped,
        samples,
        ..
    } = head;
    Ok(format!(
        "sites={sites}\nrate={rate}\nsamples={samples}\ndropped={dropped}\n"
    ))
}

fn site(region: &File, index: usize) -> anyhow::Result<Site> {
    status::read(region, sites::site_at(index))
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
        let known = KnownSite {
            size: 24,
            part: Part::Half,
            objects: 10,
            usable: 32,
        };
        let mut reading = Reading::of(known);
        let site = Site {
            alloc_objects: PARTS * 11 + PARTS / 2,
            alloc_bytes: 276,
            live_usable: 5,
            ..Site::default()
        };
        reading.add(&site);
        assert_eq!(reading.allocated.objects, 11.5);
        let line = format!(
            "sites={}",
            serde_json::to_string(&vec![reading; 27]).unwrap()
        );
        assert_eq!(readings(&line).unwrap(), [reading; 27]);
        let few = format!("sites={}", serde_json::to_string(&[reading]).unwrap());
        assert!(readings(&few).is_err() && readings("sites=[{}]").is_err());
        assert!(readings("heap=/x").is_err());
    }

    #[test]
    fn what_stays_is_what_each_part_keeps() {
        for part in Part::ALL {
            let objects = part.objects(100, 12_345);
            let kept = (0..objects).filter(|&number| part.keeps(number)).count();
            assert_eq!(kept, part.live(objects), "{part:?}");
        }
        assert_eq!(Part::Kept.objects(10_000_000, 1), 4);
    }
}
