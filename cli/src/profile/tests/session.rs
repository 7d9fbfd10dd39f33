//! Sessions: what a region gained between two readings.

use super::{live, planted, region, site};
use crate::attach::testing::Forged;
use crate::profile::model::{Extent, Frame, Profile, Switched, Value};
use crate::profile::pprof::{decode, encode};
use crate::profile::region::{Region, Session, subtract};
use crate::profile::{Base, json, leaks, tree};
use neap_shared::sites::{Head, PARTS, Site};
use std::mem::offset_of;
use std::sync::Arc;

/// A region with samples.
fn sampled(sites: &[Site]) -> Vec<u8> {
    let mut bytes = region("", sites);
    bytes[offset_of!(Head, samples)] = 1;
    bytes
}

fn parsed(bytes: &[u8]) -> Region {
    Region::parse(bytes).unwrap()
}

/// The same site with only this number of its objects still live.
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
    let mut later = parsed(&sampled(&[
        site(&[], 3, 50, 64),
        surviving(12, 24, 32, site(&[1], 100, 24, 32)),
        site(&[2], 5, 100, 112),
    ]));
    assert_eq!(subtract(&mut later, &earlier), Some(0));
    let figures: Vec<_> = later.sites.iter().map(|site| site.figures).collect();
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
    let mut later = parsed(&sampled(&[Site::default(), surviving(3, 24, 32, old)]));
    assert_eq!(subtract(&mut later, &earlier), Some(7 * 24));
    // Nothing was allocated there and nothing grew, so the session does not list it.
    assert_eq!(later.sites, []);
}

#[test]
fn of_another_region_or_an_empty_one_nothing_is_taken() {
    let one = [Site::default(), site(&[1], 10, 24, 32)];
    let whole = sampled(&one);
    let mut other = sampled(&one);
    other[offset_of!(Head, began_ms)] ^= 1;
    for earlier in [&other, &region("", &one), &Vec::new(), &vec![7; 1000]] {
        let mut later = parsed(&whole);
        assert_eq!(subtract(&mut later, earlier), None);
        assert_eq!(later.sites, parsed(&whole).sites);
    }
    // A forged region may have other frames at the same site.
    let earlier = sampled(&[Site::default(), site(&[2], 9, 24, 32)]);
    let mut later = parsed(&whole);
    assert_eq!(subtract(&mut later, &earlier), Some(0));
    assert_eq!(later.sites, parsed(&whole).sites);
}

/// A process that samples at this rate and has samples.
fn sampling(rate: u64) -> Forged {
    let forged = Forged::profile();
    put(&forged, offset_of!(Head, samples), 1);
    switch(&forged, rate, 1);
    forged
}

fn put(forged: &Forged, at: usize, word: u64) {
    forged.write(at, &word.to_ne_bytes());
}

/// Records a switch by the process.
fn switch(forged: &Forged, rate: u64, changed_ms: u64) {
    put(forged, offset_of!(Head, rate), rate);
    put(forged, offset_of!(Head, changed_ms), changed_ms);
}

/// The profile of a session during which `meanwhile` changes the region.
fn session_with(forged: &Forged, meanwhile: impl FnOnce(&Forged)) -> Profile {
    let region = forged.region();
    let session = Session::of(Some(&region), 65536).unwrap();
    meanwhile(forged);
    let ended = session.end(&region).unwrap();
    ended.profile(std::process::id()).unwrap()
}

#[test]
fn an_undisturbed_session_says_nothing() {
    let profile = session_with(&sampling(65536), |_| {});
    assert_eq!((profile.rate, profile.switched), (65536, None));
    assert!(json(&profile)["switched"].is_null());
}

#[test]
fn a_session_keeps_its_rate_and_tells_who_switched_it() {
    for (rate, words) in [
        (0, "Sampling was switched off by another neap "),
        (
            1 << 20,
            "Sampling was switched to every 1.0 MiB on average by another",
        ),
        (
            65536,
            "Sampling was switched to every 64.0 KiB on average by another",
        ),
    ] {
        // So far in the future that it lies after the end.
        let profile = session_with(&sampling(65536), |forged| switch(forged, rate, u64::MAX));
        assert_eq!(profile.rate, 65536);
        assert_eq!(profile.switched.map(|switched| switched.rate), Some(rate));
        let lasted = profile.ended_ms - profile.began_ms;
        assert_eq!(profile.switched.unwrap().after_ms, lasted);
        let text = tree(&profile, Value::LiveSpace);
        assert!(
            text.contains("(sampled every 64.0 KiB on average)") && text.contains(words),
            "{text}"
        );
        assert_eq!(json(&profile)["switched"]["rate"], rate);
        assert_eq!(
            decode(&encode(&profile)).unwrap().switched,
            profile.switched
        );
    }
}

#[test]
fn a_session_that_switches_sampling_on_does_not_take_itself_for_another() {
    let forged = sampling(0);
    let region = forged.region();
    let mut session = Session::of(Some(&region), 65536).unwrap();
    assert!(!session.has_begun(&region.head().unwrap()));
    switch(&forged, 65536, 2);
    session.switched_on(&region).unwrap();
    assert!(session.has_begun(&region.head().unwrap()));
    let ended = session.end(&region).unwrap();
    assert_eq!(ended.profile(std::process::id()).unwrap().switched, None);
}

#[test]
fn a_first_session_that_was_cut_off_says_so_too() {
    let session = Session::of(None, 65536).unwrap();
    let ended = session.end(&sampling(0).region()).unwrap();
    let profile = ended.profile(std::process::id()).unwrap();
    assert_eq!(profile.extent, Extent::Whole);
    let cut_off = Switched {
        rate: 0,
        after_ms: 0,
    };
    assert_eq!((profile.rate, profile.switched), (65536, Some(cut_off)));
    let text = tree(&profile, Value::LiveSpace);
    assert!(
        text.contains("switched off by another neap 0.0 s after"),
        "{text}"
    );
}

#[test]
fn a_region_that_cannot_be_read_is_no_region_that_is_not_there() {
    let forged = sampling(65536);
    let region = forged.region();
    put(&forged, offset_of!(Head, magic), 7);
    assert!(Session::of(Some(&region), 65536).is_err());
    assert!(Session::of(None, 65536).is_ok());
}

#[test]
fn a_rate_that_is_not_known_is_left_out() {
    let profile = Profile {
        rate: 0,
        ..of_session(0)
    };
    let text = tree(&profile, Value::LiveSpace);
    assert!(text.contains("allocated in 2.5 s; "), "{text}");
}

#[test]
fn objects_that_shrink_while_bytes_grow_have_words() {
    let mut profile = of_session(0);
    for stack in &mut profile.stacks {
        stack.figures.live_objects = 0;
    }
    for value in [Value::LiveSpace, Value::Waste] {
        let text = leaks(&profile, value);
        assert!(text.contains("in no more objects"), "{text}");
        assert!(!text.contains(" 0 objects"), "{text}");
    }
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
planted, process 77: 134.9 MiB in 1,049,584 objects allocated in 2.5 s (sampled every 512.0 KiB on \
average); 127.9 MiB \
in 1,049,577 more objects are live than before, at the places that grew (the others hold 3.0 MiB \
less).
The largest part of the growth of live bytes, 100.0 MiB (78.2 %), comes from download";
    assert!(text.starts_with(opening), "{text}");
    assert!(text.contains("\nCalls by growth of live bytes\n"), "{text}");
    let text = leaks(&of_session(0), Value::Waste);
    assert!(text.contains("objects are live than before.\n"), "{text}");
    let title = "More live than before, sorted by growth of the bytes that size classes add to \
                 live objects: 1 place";
    assert!(text.contains(title), "{text}");
    assert_eq!(json(&of_session(7))["session"]["shrunk_space"], 7);
    assert!(json(&planted())["session"].is_null());
}

#[test]
fn a_file_remembers_that_it_is_of_a_session() {
    let read = decode(&encode(&of_session(5))).unwrap();
    assert_eq!(read.extent, Extent::Session { shrunk: 5 });
}

#[test]
fn profiles_in_a_row_share_what_is_live_and_no_allocation() {
    let old = site(&[1], 10, 24, 32);
    let earlier = sampled(&[Site::default(), old]);
    let later = sampled(&[
        Site::default(),
        surviving(12, 24, 32, site(&[1], 100, 24, 32)),
        site(&[2], 5, 100, 112),
    ]);
    let figures = |base: &Base, bytes: &[u8]| {
        let profile = base.profile(bytes.to_vec(), 1).unwrap();
        let figures = profile.stacks.iter().map(|stack| stack.figures);
        let figures = figures.map(|of| (of.alloc_objects, of.alloc_bytes, of.live_objects));
        (profile.began_ms, figures.collect::<Vec<_>>())
    };
    let base = Base::of(&earlier).unwrap();
    let (began_ms, found) = figures(&base, &later);
    assert_eq!(found, [(90, 2160, 12), (5, 500, 5)]);
    assert!(began_ms > 1000);
    assert_eq!(figures(&base, &earlier).1, [(0, 0, 10)]);
    // Of a process that began later, everything counts.
    let all = (1000, vec![(100, 2400, 12), (5, 500, 5)]);
    assert_eq!(figures(&base.beginning_after(999).unwrap(), &later), all);
    assert!(base.beginning_after(1000).is_none());
    let mut other = later.clone();
    other[offset_of!(Head, began_ms)] ^= 1;
    assert_eq!(figures(&base, &other).1, all.1);
    assert_eq!(
        figures(&Base::of(&later).unwrap(), &earlier).1,
        [(0, 0, 10)]
    );
    assert!(Base::of(&[7; 1000]).is_err() && base.profile(vec![7; 1000], 1).is_err());
}

/// A profile of `planted`'s process, taken a second later.
fn later(change: impl Fn(&mut Profile)) -> Profile {
    let mut later = planted();
    later.ended_ms += 1000;
    change(&mut later);
    later
}

#[test]
fn a_later_profile_has_what_it_has_more_than_an_earlier_one() {
    let grown = later(|later| {
        later.stacks[0].figures.live_bytes -= 1 << 20;
        later.stacks[0].figures.live_usable -= 1 << 20;
        later.stacks[1].figures.add(&live(10, 24, 32));
        let twin = later.stacks[1].clone();
        later.stacks.push(twin);
    });
    let more = grown.since(&planted()).unwrap();
    assert_eq!((more.began_ms, more.ended_ms), (12_500, 13_500));
    assert_eq!(more.extent, Extent::Session { shrunk: 1 << 20 });
    let [only] = &more.stacks[..] else {
        panic!("{:?}", more.stacks)
    };
    assert_eq!(only.frames, planted().stacks[1].frames);
    let mut expected = live((1 << 20) + 10, 24, 32);
    expected.add(&live(10, 24, 32));
    assert_eq!(only.figures, expected);
    let back = decode(&encode(&more)).unwrap();
    assert_eq!((back.began_ms, back.extent), (more.began_ms, more.extent));
    // What is gone entirely has shrunk as well.
    let without = later(|later| later.stacks.clear());
    let more = without.since(&planted()).unwrap();
    let shrunk = planted().total().live_bytes;
    assert_eq!(
        (more.stacks, more.extent),
        (vec![], Extent::Session { shrunk })
    );
}

#[test]
fn runs_are_compared_by_function() {
    let moved = |pid| {
        later(|later| {
            later.pid = pid;
            for stack in &mut later.stacks {
                let frames = stack.frames.iter().map(|frame| (**frame).clone());
                let moved = frames.map(|frame| {
                    Arc::new(Frame {
                        line: frame.line + 1,
                        ..frame
                    })
                });
                stack.frames = moved.collect();
            }
        })
    };
    let more = moved(78).since(&planted()).unwrap();
    assert_eq!((more.stacks.len(), more.began_ms), (0, more.ended_ms));
    assert_eq!(
        tree(&more, Value::LiveSpace).lines().next().unwrap(),
        "planted, process 78: 0 B in 0 objects allocated more than in the other run, at the places \
         that grew (sampled every 512.0 KiB on average); no place holds more live bytes than before."
    );
    // Of one process, another line is another place.
    let lines = moved(77).since(&planted()).unwrap();
    assert_eq!(lines.total(), planted().total());
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let session = later(|later| later.extent = Extent::Session { shrunk: 0 });
    for (one, other, why) in [
        (session.clone(), planted(), "is a difference already"),
        (later(|_| ()), session, "is a difference already"),
        (planted(), later(|_| ()), "is the later one"),
    ] {
        let refused = one.since(&other).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
