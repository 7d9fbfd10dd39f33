//! The stack walk in a program with a gap between two of its segments: it uses the program's
//! tables.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

use neap_instruments::unwind::{capture, prepare};
use std::fs;
use std::hint::black_box;

// The alignment moves the segment of the code to a multiple of 1 MiB.
std::arch::global_asm!(
    ".pushsection .text.far, \"ax\", @progbits",
    ".p2align 20",
    "far_away:",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    safe fn far_away();
}

/// Whether there is a gap between two of the program's mappings.
fn has_gap() -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let program = std::env::current_exe().unwrap();
    let own = maps
        .lines()
        .filter(|line| line.ends_with(program.to_str().unwrap()));
    let ranges: Vec<(&str, &str)> = own
        .filter_map(|line| line.split(' ').next()?.split_once('-'))
        .collect();
    ranges.windows(2).any(|pair| pair[0].1 != pair[1].0)
}

/// The frames of this function's caller, by Neap's walk and by libgcc's.
#[inline(never)]
fn both() -> [Vec<u64>; 2] {
    let (mut ours, mut theirs) = ([0; 200], [std::ptr::null_mut(); 200]);
    let count = capture(&mut ours);
    // SAFETY: room for as many as are asked for.
    let their_count = unsafe { libc::backtrace(theirs.as_mut_ptr(), 200) } as usize;
    let ours = ours[..count].to_vec();
    let theirs = theirs[..their_count]
        .iter()
        .map(|frame| frame.addr() as u64);
    // The first frame differs by where it calls.
    black_box([ours.into_iter().skip(1).collect(), theirs.skip(1).collect()])
}

#[test]
fn a_walk_passes_a_gap_between_the_programs_segments() {
    far_away();
    assert!(has_gap(), "this test needs a program with a gap");
    prepare();
    let [ours, theirs] = both();
    assert!(ours.len() > 3, "{ours:x?}");
    assert_eq!(ours, theirs);
}
