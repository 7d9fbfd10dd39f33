//! The stack walk on real frames: compared with libgcc's, counted where the depth is known, and on
//! stacks with false contents.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

mod allocator;
mod garbage;
mod library;
#[path = "../../../ci/skips.rs"]
mod skips;
mod stacks;

use library::{Build, Library};
use neap_instruments::unwind::capture;
use proptest::prelude::*;
use std::cell::RefCell;
use std::hint::black_box;

/// Room for every stack of these tests.
const MOST: usize = 4096;

thread_local! {
    /// What [`look`] saw last: Neap's frames, libgcc's.
    static SEEN: RefCell<(Vec<u64>, Vec<u64>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Neap's frames of the caller.
#[inline(never)]
fn frames() -> Vec<u64> {
    let mut frames = vec![0; MOST];
    let count = capture(&mut frames);
    frames.truncate(count);
    frames
}

/// libgcc's frames of the caller.
#[inline(never)]
fn libgcc_frames() -> Vec<u64> {
    let mut frames = vec![std::ptr::null_mut(); MOST];
    // SAFETY: room for as many as are asked for.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), MOST as i32) };
    frames.truncate(count as usize);
    frames.iter().map(|frame| frame.addr() as u64).collect()
}

/// The callback: walks its own stack in both ways. The first two frames of each walk (the helper
/// and this function) differ by where they called.
#[inline(never)]
extern "C" fn look() {
    let (ours, theirs) = (frames(), libgcc_frames());
    let (ours, theirs) = (ours[2..].to_vec(), theirs[2..].to_vec());
    SEEN.with(|seen| *seen.borrow_mut() = black_box((ours, theirs)));
}

fn seen() -> (Vec<u64>, Vec<u64>) {
    SEEN.with(|seen| seen.take())
}

/// As [`look`], our own walk only.
extern "C" fn look_alone() {
    let ours = frames()[2..].to_vec();
    SEEN.with(|seen| *seen.borrow_mut() = (ours, Vec::new()));
}

fn count_of_most_common(frames: &[u64]) -> usize {
    let count = |of: &u64| frames.iter().filter(|frame| *frame == of).count();
    frames.iter().map(count).max().unwrap_or(0)
}

#[test]
fn a_recursion_has_the_depth_it_has() {
    for build in [Build::Tables, Build::Both, Build::Pointers] {
        let Some(library) = Library::new(build) else {
            return;
        };
        for depth in [1, 17, 49, 1000] {
            library.descend(depth, look_alone);
            let (ours, _) = seen();
            assert_eq!(count_of_most_common(&ours), depth as usize, "{build:?}");
            assert!(
                ours.len() > depth as usize + 3,
                "{build:?}: not to its end: {ours:x?}"
            );
        }
    }
}

#[test]
fn no_more_is_written_than_there_is_room() {
    neap_instruments::unwind::prepare();
    assert_eq!(capture(&mut []), 0);
    let mut frames = [7; 4];
    assert_eq!(capture(&mut frames[..2]), 2);
    assert!(frames[0] > 4096 && frames[1] > 4096);
    assert_eq!(frames[2..], [7, 7]);
}

#[test]
fn a_thread_is_walked_to_its_start() {
    let Some(library) = Library::new(Build::Tables) else {
        return;
    };
    let walk = move || {
        library.descend(20, look);
        seen()
    };
    struct Sent<T>(T);
    // SAFETY: a handle and function addresses are the process's, not a thread's.
    unsafe impl<T> Send for Sent<T> {}
    let sent = Sent(walk);
    let (ours, theirs) = std::thread::spawn(move || {
        let sent = sent;
        sent.0()
    })
    .join()
    .unwrap();
    assert!(ours.len() > 23);
    assert_eq!(ours, theirs);
}

/// Whether `start` begins as `all` does.
fn begins(all: &[u64], start: &[u64]) -> bool {
    all.get(..start.len()) == Some(start)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Where tables tell everything, the walk is libgcc's to the last frame; without them, it goes
    /// on where libgcc stops.
    #[test]
    fn the_walk_is_libgccs(kinds in proptest::collection::vec(0..6_u8, 0..40)) {
        for build in [Build::Tables, Build::Both, Build::Pointers] {
            let Some(library) = loaded(build) else {
                return Ok(());
            };
            library.climb(&kinds, look);
            let (ours, theirs) = seen();
            if build == Build::Pointers {
                prop_assert!(begins(&ours, &theirs), "{ours:x?}\n{theirs:x?}");
            } else {
                prop_assert_eq!(&ours, &theirs, "{:?}", build);
                prop_assert!(ours.len() > kinds.len());
            }
        }
    }
}

/// The library of each build, loaded once a thread.
fn loaded(build: Build) -> Option<Library> {
    thread_local! {
        static LOADED: RefCell<Vec<(Build, Option<Library>)>> = const { RefCell::new(Vec::new()) };
    }
    LOADED.with_borrow_mut(|loaded| {
        if let Some((_, library)) = loaded.iter().find(|(of, _)| *of == build) {
            return *library;
        }
        let library = Library::new(build);
        loaded.push((build, library));
        library
    })
}
