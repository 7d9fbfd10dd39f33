//! The innermost place of a sample is the program's call, at every level of optimization, with and
//! without debug information: the profiler knows the allocator's own calls by their addresses.

use neap::{Neap, profile};
use neap_shared::sites::{FRAMES, Head, Site, site_at};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeSet;
use std::hint::black_box;

#[global_allocator]
static ALLOCATOR: Neap = Neap;

// The ends of the section that the functions of this program are in.
unsafe extern "C" {
    static __start_program_text: u8;
    static __stop_program_text: u8;
}

/// Blocks of each kind. At [`RATE`], it is sampled with near certainty.
const BLOCKS: usize = 200;
const RATE: u64 = 4096;

type Make = unsafe fn(usize);

#[inline(never)]
#[unsafe(link_section = "program_text")]
unsafe fn allocates(bytes: usize) {
    let layout = Layout::from_size_align(bytes, 8).unwrap();
    // SAFETY: not of no bytes.
    black_box(unsafe { ALLOCATOR.alloc(layout) });
}

#[inline(never)]
#[unsafe(link_section = "program_text")]
unsafe fn allocates_aligned(bytes: usize) {
    let layout = Layout::from_size_align(bytes, 256).unwrap();
    // SAFETY: not of no bytes.
    black_box(unsafe { ALLOCATOR.alloc(layout) });
}

#[inline(never)]
#[unsafe(link_section = "program_text")]
unsafe fn allocates_zeroed(bytes: usize) {
    let layout = Layout::from_size_align(bytes, 16).unwrap();
    // SAFETY: not of no bytes.
    black_box(unsafe { ALLOCATOR.alloc_zeroed(layout) });
}

#[inline(never)]
#[unsafe(link_section = "program_text")]
unsafe fn grows(bytes: usize) {
    let layout = Layout::from_size_align(8, 8).unwrap();
    // SAFETY: not of no bytes; a block of that layout.
    black_box(unsafe {
        let block = ALLOCATOR.alloc(layout);
        ALLOCATOR.realloc(block, layout, bytes)
    });
}

const MAKERS: [Make; 4] = [allocates, allocates_aligned, allocates_zeroed, grows];

fn record<T: bytemuck::Pod>(offset: usize) -> T {
    let mut record = T::zeroed();
    let words = bytemuck::cast_slice_mut(std::slice::from_mut(&mut record));
    assert!(neap_instruments::profile::read_region(offset, words));
    record
}

/// The frames of each place that allocated.
fn places() -> Vec<Vec<u64>> {
    let sites = record::<Head>(0).sites as usize;
    let sites = (1..sites).map(|index| record::<Site>(site_at(index)));
    sites
        .map(|site| site.frames[..(site.depth as usize).min(FRAMES)].to_vec())
        .collect()
}

#[test]
fn the_first_frame_is_the_programs() {
    let program = (&raw const __start_program_text).addr()..(&raw const __stop_program_text).addr();
    let is_programs = |frame: &u64| program.contains(&(*frame as usize));
    profile::start(RATE).unwrap();
    for make in MAKERS {
        // Of the sizes in the table of classes, of those above it, and of large blocks.
        for bytes in [100, 700, 5_000, 60_000, 3 << 20] {
            // SAFETY: not of no bytes.
            (0..BLOCKS).for_each(|_| unsafe { make(bytes) });
        }
    }
    let mut made = places();
    made.retain(|frames| frames.iter().any(is_programs));
    let begins = |frames: &Vec<u64>| is_programs(&frames[0]);
    assert!(made.iter().all(begins), "{made:x?}, not in {program:x?}");
    let calls: BTreeSet<u64> = made.iter().map(|frames| frames[0]).collect();
    assert!(calls.len() >= MAKERS.len(), "{calls:x?}");
}
