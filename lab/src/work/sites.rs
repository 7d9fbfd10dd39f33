//! Exactly known allocations, place by place, to compare with the sampling profiler. At the end the
//! process reads its own region, and reports both.

use std::fs::File;

use anyhow::Context as _;
use neap_shared::sites::{self, Head, Site};

use super::heap;
use super::known::{Known, Part, Reading, SIZES};
use crate::memory_file;

/// Live blocks before some of them are freed.
const CHUNK: usize = 64;

/// A place that allocates, and its allocations.
struct Place {
    size: usize,
    part: Part,
    allocate: fn(usize) -> usize,
}

/// A separate function for each size and part, so that each is a site of its own.
fn place<const SIZE: usize, const PART: usize>() -> Place {
    Place {
        size: SIZE,
        part: Part::ALL[PART],
        allocate: allocate::<SIZE, PART>,
    }
}

fn places_of<const SIZE: usize>() -> [Place; 3] {
    [place::<SIZE, 0>(), place::<SIZE, 1>(), place::<SIZE, 2>()]
}

fn places() -> Vec<Place> {
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
        readings.push(Reading::of(Known {
            size: place.size,
            part: place.part,
            objects,
            usable,
        }));
    }
    let region = memory_file::open("self", sites::NAME).context("this process has no profile")?;
    memory_file::ensure_words(&region, sites::MAGIC, sites::VERSION)?;
    let head: Head = memory_file::read(&region, 0)?;
    for site in (0..head.sites as usize).map(|index| site(&region, index)) {
        let site = site?;
        if let Some(at) = place_of(&places, &site) {
            readings[at].add(&site);
        }
    }
    let lines: String = readings.iter().map(Reading::line).collect();
    let Head {
        rate,
        dropped,
        samples,
        ..
    } = head;
    Ok(format!(
        "{lines}rate={rate}\nsamples={samples}\ndropped={dropped}\n"
    ))
}

fn site(region: &File, index: usize) -> anyhow::Result<Site> {
    memory_file::read(region, sites::site_at(index))
}

/// An upper bound of the length of a place's code.
const LONGEST: usize = 4 << 10;

/// The place that contains a site's innermost frame in this program. Frames of the allocator are
/// far away.
fn place_of(places: &[Place], site: &Site) -> Option<usize> {
    let depth = (site.depth as usize).min(sites::FRAMES);
    site.frames[..depth].iter().find_map(|&frame| {
        let offset = |place: &Place| (frame as usize).wrapping_sub(place.allocate as usize);
        let (at, nearest) = places
            .iter()
            .map(offset)
            .enumerate()
            .min_by_key(|&(_, offset)| offset)?;
        (nearest < LONGEST).then_some(at)
    })
}
