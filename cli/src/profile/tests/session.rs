//! Sessions: what a region gained between two readings.

use super::{planted, region, site};
use crate::profile::model::{Extent, Profile, Value};
use crate::profile::pprof::{decode, encode};
use crate::profile::region::Region;
use crate::profile::session::subtract;
use crate::profile::{json, leaks, tree};
use neap::sites::{Head, PARTS, Site};
use std::mem::offset_of;

/// A region that has had samples.
fn sampled(sites: &[Site]) -> Vec<u8> {
    let mut bytes = region("", sites);
    bytes[offset_of!(Head, samples)] = 1;
    bytes
}

/// The same site, of whose objects only so many live.
fn surviving(objects: u64, size: u64, class: u64, of: Site) -> Site {
    Site {
        live_objects: objects * PARTS,
        live_bytes: objects * size,
        live_usable: objects * class,
        ..of
    }
}

#[test]
fn a_session_has_what_was_added_to_each_place() {
    let earlier = sampled(&[site(&[], 1, 50, 64), site(&[1], 10, 24, 32)]);
    let mut later = sampled(&[
        site(&[], 3, 50, 64),
        surviving(12, 24, 32, site(&[1], 100, 24, 32)),
        site(&[2], 5, 100, 112),
    ]);
    assert_eq!(subtract(&mut later, &earlier), Some(0));
    let figures: Vec<_> = Region::parse(&later)
        .unwrap()
        .sites
        .iter()
        .map(|site| site.figures)
        .collect();
    let allocated = figures
        .iter()
        .map(|of| (of.alloc_objects, of.alloc_bytes, of.alloc_usable));
    assert_eq!(
        allocated.collect::<Vec<_>>(),
        [(2, 100, 128), (90, 2160, 2880), (5, 500, 560)]
    );
    let live = figures
        .iter()
        .map(|of| (of.live_objects, of.live_bytes, of.waste()));
    assert_eq!(
        live.collect::<Vec<_>>(),
        [(2, 100, 28), (2, 48, 16), (5, 500, 60)]
    );
}

#[test]
fn what_shrank_is_told_apart_and_counts_for_nothing() {
    let old = site(&[1], 10, 24, 32);
    let earlier = sampled(&[Site::default(), old]);
    let mut later = sampled(&[Site::default(), surviving(3, 24, 32, old)]);
    assert_eq!(subtract(&mut later, &earlier), Some(7 * 24));
    // Nothing was allocated there, and nothing grew: no place of the session.
    assert_eq!(Region::parse(&later).unwrap().sites, []);
}

#[test]
fn of_another_region_or_an_empty_one_nothing_is_taken() {
    let one = [Site::default(), site(&[1], 10, 24, 32)];
    let whole = sampled(&one);
    let mut other = sampled(&one);
    other[offset_of!(Head, began_ms)] ^= 1;
    for earlier in [&other, &region("", &one), &Vec::new(), &vec![7; 1000]] {
        let mut later = whole.clone();
        assert_eq!(subtract(&mut later, earlier), None);
        assert_eq!(later, whole);
    }
    // A forged region may have other frames at the same site.
    let earlier = sampled(&[Site::default(), site(&[2], 9, 24, 32)]);
    let mut later = whole.clone();
    assert_eq!(subtract(&mut later, &earlier), Some(0));
    assert_eq!(later, whole);
}

fn of_session(shrunk: u64) -> Profile {
    Profile {
        extent: Extent::Session { shrunk },
        ..planted()
    }
}

#[test]
fn texts_say_that_live_means_growth() {
    let text = tree(&of_session(3 << 20), Value::LiveSpace);
    let opening = "\
planted, process 77: 134.9 MiB in 1,049,584 objects allocated in 2.5 s (sampled every 512.0 KiB on average); 127.9 MiB \
in 1,049,577 objects more are live than before, at the places that grew (the others hold 3.0 MiB less).
The largest part of the growth of live bytes, 100.0 MiB (78.2 %), comes from download";
    assert!(text.starts_with(opening), "{text}");
    assert!(text.contains("\nCalls by growth of live bytes\n"), "{text}");
    let text = leaks(&of_session(0), Value::Waste);
    assert!(text.contains("more are live than before.\n"), "{text}");
    let title = "More live than before, sorted by growth of the bytes that size classes add to live objects: 1 places";
    assert!(text.contains(title), "{text}");
    assert_eq!(json(&of_session(7))["session"]["shrunk_space"], 7);
    assert!(json(&planted())["session"].is_null());
}

#[test]
fn a_file_remembers_that_it_is_of_a_session() {
    let read = decode(&encode(&of_session(5))).unwrap();
    assert_eq!(read.extent, Extent::Session { shrunk: 5 });
}
