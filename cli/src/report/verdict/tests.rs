mod growth;

use super::*;
use crate::profile::{Figures, Frame, Profile, Stack};
use crate::recording::format::{Event, Happening, Heap, Sample, Spans};
use crate::report::material::Material;
use crate::report::subject::Subject;
use neap_shared::ledger::{Ledger, Requested};
use std::sync::Arc;

const MB: u64 = 1_000_000;

fn sample(t_ms: u64, rss: u64, ledger: Ledger) -> Sample {
    let sample = Sample {
        t_ms,
        pid: 7,
        rss,
        ..Sample::default()
    };
    sample.with(Heap {
        ledger,
        ..Heap::default()
    })
}

fn stack(function: &str, figures: Figures) -> Stack {
    let frame = |name: &str| {
        Arc::new(Frame {
            function: name.to_owned(),
            file: "planted.c".to_owned(),
            line: 12,
            ..Frame::default()
        })
    };
    Stack {
        frames: vec![frame(function), frame("main")],
        figures,
    }
}

fn blocks(objects: u64, asked: u64, usable: u64) -> Figures {
    Figures {
        alloc_objects: objects,
        alloc_bytes: objects * asked,
        alloc_usable: 0,
        live_objects: objects,
        live_bytes: objects * asked,
        live_usable: objects * usable,
    }
}

/// The verdict on these samples and a profile of these stacks.
fn verdict(samples: &[Sample], stacks: Vec<Stack>) -> Verdict {
    verdict_of(samples, stacks, None, None)
}

/// [`verdict`], with profiles of the peak and of an early time.
fn verdict_of(
    samples: &[Sample],
    stacks: Vec<Stack>,
    at_peak: Option<&(u64, Profile)>,
    early: Option<&(u64, Profile)>,
) -> Verdict {
    let profile = Profile {
        stacks,
        rate: early.map_or(0, |(_, early)| early.rate),
        ..Profile::default()
    };
    let last = samples.last().map_or(0, |sample| sample.t_ms);
    let ended = Event {
        t_ms: last.saturating_add(10),
        pid: 7,
        what: Happening::Exited { status: 0 },
    };
    let material = Material::default();
    let mut subject = Subject::choose(&material);
    subject.program = "planted".to_owned();
    subject.samples = samples.iter().collect();
    subject.profile = Some(&profile).filter(|profile| !profile.stacks.is_empty());
    subject.events = vec![&ended];
    (subject.at_peak, subject.early) = (at_peak, early);
    judge(&subject)
}

fn kinds(verdict: &Verdict) -> Vec<&str> {
    verdict
        .findings
        .iter()
        .map(|finding| finding.kind)
        .collect()
}

fn of_ledger(ledger: Ledger) -> Verdict {
    let resident = u64::try_from(ledger.sum()).unwrap();
    let ledger = Ledger { resident, ..ledger };
    verdict(&[sample(100, resident + MB, ledger)], Vec::new())
}

fn calm() -> Ledger {
    Ledger {
        requested: 100 * MB,
        rounding: 5 * MB,
        slab_free: 3 * MB,
        ..Ledger::default()
    }
}

#[test]
fn nothing_stands_out_of_a_calm_heap() {
    let ledger = calm();
    let resident = u64::try_from(ledger.sum()).unwrap();
    let ledger = Ledger { resident, ..ledger };
    let even = (0..100).map(|number| stack(&format!("f{number}"), blocks(1, 64, 64)));
    let verdict = verdict(&[sample(100, resident + MB, ledger)], even.collect());
    assert_eq!(kinds(&verdict), [""; 0]);
    assert!(
        verdict.opening.contains("Nothing stands out"),
        "{}",
        verdict.opening
    );
}

#[test]
fn places_that_were_not_sampled_are_not_called_inconspicuous() {
    let opening = of_ledger(calm()).opening;
    assert!(!opening.contains("no place"), "{opening}");
    let said = "Places in the program were not sampled: record with `neap run --record --sample \
                512K -- PROGRAM` to see them.";
    assert!(opening.ends_with(said), "{opening}");
}

#[test]
fn every_line_has_its_finding_and_small_programs_are_not_scolded() {
    type Set = fn(&mut Ledger, u64);
    let lines: [(&str, Set); 10] = [
        ("free_held", |ledger, bytes| ledger.free_dirty = bytes),
        ("fragmentation", |ledger, bytes| ledger.slab_free = bytes),
        ("magazines", |ledger, bytes| ledger.magazines = bytes),
        ("stacks", |ledger, bytes| ledger.stacks_idle = bytes),
        ("huge_excess", |ledger, bytes| ledger.huge_excess = bytes),
        ("untouched", |ledger, bytes| ledger.untouched = bytes),
        ("swapped", |ledger, bytes| ledger.swapped = bytes),
        ("quarantine", |ledger, bytes| ledger.quarantine = bytes),
        ("metadata", |ledger, bytes| ledger.metadata = bytes),
        ("sampling", |ledger, bytes| ledger.sampling = bytes),
    ];
    for (kind, set) in lines {
        let mut large = calm();
        set(&mut large, 80 * MB);
        assert_eq!(kinds(&of_ledger(large)), [kind]);
        // The same shares in a program a tenth of the size.
        let mut small = Ledger {
            requested: 10 * MB,
            ..Ledger::default()
        };
        set(&mut small, 8 * MB);
        assert_eq!(kinds(&of_ledger(small)), [""; 0], "{kind}");
        // The same bytes in a program ten times the size.
        let mut huge = Ledger {
            requested: 2000 * MB,
            ..Ledger::default()
        };
        set(&mut huge, 80 * MB);
        assert_eq!(kinds(&of_ledger(huge)), [""; 0], "{kind}");
    }
}

#[test]
fn rounding_is_told_only_where_it_is_known() {
    let of = |requested_by: Requested| {
        of_ledger(Ledger {
            rounding: 40 * MB,
            requested_by: requested_by as u64,
            ..calm()
        })
    };
    assert_eq!(kinds(&of(Requested::Guessed)), [""; 0]);
    assert_eq!(kinds(&of(Requested::Sampled)), ["rounding"]);
    assert_eq!(kinds(&of(Requested::Counted)), ["rounding"]);
}

#[test]
fn what_is_not_in_the_heap_is_told() {
    let ledger = Ledger {
        requested: 20 * MB,
        resident: 20 * MB,
        ..Ledger::default()
    };
    let verdict = verdict(&[sample(5, 100 * MB, ledger)], Vec::new());
    assert_eq!(kinds(&verdict), ["not_ours"]);
    assert_eq!(verdict.findings[0].bytes, 80 * MB);
}

#[test]
fn a_planted_leak_is_named_with_its_line() {
    let stacks = vec![
        stack("forget", blocks(20_000, 1000, 1000)),
        stack("keep", blocks(3_000, 1000, 1000)),
    ];
    let verdict = verdict(&[], stacks);
    assert_eq!(kinds(&verdict), ["leak"]);
    assert_eq!(verdict.findings[0].site.as_deref(), Some("forget"));
    let headline = &verdict.findings[0].headline;
    assert!(headline.contains("`forget` (planted.c:12)"), "{headline}");
}

#[test]
fn what_is_freed_is_no_leak() {
    let mut figures = blocks(20_000, 1000, 1000);
    figures.alloc_bytes *= 10;
    figures.alloc_objects *= 10;
    let mut stacks = small_places(300);
    stacks.push(stack("churn", figures));
    assert_eq!(kinds(&verdict(&[], stacks)), [""; 0]);
}

/// A hundred places that hold this many blocks of 1,000 bytes each.
fn small_places(objects: u64) -> Vec<Stack> {
    let places = 0..100;
    let place = |number| stack(&format!("f{number}"), blocks(objects, 1000, 1000));
    places.map(place).collect()
}

/// Live blocks of 1,000 bytes of a place that allocated ten times as many.
fn tenth(objects: u64) -> Figures {
    let live = blocks(objects, 1000, 1000);
    Figures {
        alloc_objects: live.alloc_objects * 10,
        alloc_bytes: live.alloc_bytes * 10,
        ..live
    }
}

#[test]
fn a_leak_of_one_request_in_ten_is_named_if_it_is_most_of_what_is_live() {
    let mut stacks = small_places(100);
    stacks.push(stack("forget", tenth(20_000)));
    let verdict = verdict(&[], stacks);
    assert_eq!(kinds(&verdict), ["leak"]);
    let finding = &verdict.findings[0];
    assert_eq!(finding.site.as_deref(), Some("forget"));
    let part = "10 % of all that was allocated there had not been freed by then";
    assert!(finding.detail.starts_with(part), "{}", finding.detail);
}

#[test]
fn what_held_most_at_the_peak_is_not_called_freed_if_it_is_live() {
    let at_peak = Profile {
        stacks: vec![stack("session", blocks(20_000, 1000, 1000))],
        ..Profile::default()
    };
    for (live, said, remedy) in [
        (15_000, "14.3 MiB of this place were live", "only grows"),
        (0, "0 B of this place were live", "smaller pieces"),
    ] {
        let mut stacks = small_places(300);
        stacks.push(stack("session", tenth(live)));
        let verdict = verdict_of(&[], stacks, Some(&(3000, at_peak.clone())), None);
        assert_eq!(kinds(&verdict), ["peak"]);
        let finding = &verdict.findings[0];
        assert!(finding.detail.contains(said), "{}", finding.detail);
        assert!(finding.remedy.contains(remedy), "{}", finding.remedy);
    }
}

#[test]
fn two_lines_of_a_function_are_two_places() {
    let on_line = |line| {
        let mut stack = stack("build", blocks(20_000, 1000, 1000));
        Arc::make_mut(&mut stack.frames[0]).line = line;
        stack
    };
    let at_peak = Profile {
        stacks: vec![on_line(7), on_line(8)],
        ..Profile::default()
    };
    let verdict = verdict_of(&[], small_places(300), Some(&(3000, at_peak)), None);
    assert_eq!(kinds(&verdict), ["peak"; 2]);
}

#[test]
fn planted_waste_is_named_with_its_sizes() {
    let mut churned = blocks(2_000_000, 24, 32);
    churned.alloc_bytes *= 100;
    churned.alloc_objects *= 100;
    let verdict = verdict(&[], vec![stack("node", churned)]);
    assert_eq!(kinds(&verdict), ["leak", "waste"]);
    let told = "`node` (planted.c:12): on average 24 bytes in blocks of 32.";
    let headline = &verdict.findings[1].headline;
    assert!(headline.contains(told), "{headline}");
    assert_eq!(verdict.findings[1].bytes, 16 * MB);
    let remedy = &verdict.findings[1].remedy;
    assert!(remedy.starts_with("Shrink the object"), "{remedy}");
}

#[test]
fn a_mean_of_several_sizes_has_no_remedy_for_one_size() {
    let of = |stacks: Vec<Figures>| {
        let stacks = stacks.into_iter().map(|figures| stack("string", figures));
        let verdict = verdict(&[], stacks.collect());
        let waste = verdict
            .findings
            .iter()
            .find(|finding| finding.kind == "waste");
        waste.unwrap().remedy.clone()
    };
    let keys = blocks(1_000_000, 21, 32);
    let values = blocks(1_000_000, 90, 112);
    let mut both = keys;
    both.add(&values);
    both.live_usable -= 3_000_000;
    assert!(of(vec![keys, keys]).starts_with("Shrink the object"));
    // Two callers' sizes, whose mean is a class; one caller's, whose mean is none.
    for mixed in [vec![keys, values], vec![both]] {
        let remedy = of(mixed);
        assert!(
            remedy.starts_with("The blocks have several sizes"),
            "{remedy}"
        );
    }
}

#[test]
fn a_planted_large_buffer_is_named_also_when_it_was_freed() {
    let figures = Figures {
        alloc_objects: 10,
        alloc_bytes: 1000 * MB,
        ..Figures::default()
    };
    let ledger = Ledger {
        requested: 102 * MB,
        untouched: 99 * MB,
        resident: 3 * MB,
        ..Ledger::default()
    };
    let samples = [sample(5, 12 * MB, ledger)];
    let verdict = verdict(&samples, vec![stack("receive", figures)]);
    assert!(kinds(&verdict).contains(&"large_blocks"), "{verdict:?}");
    let finding = &verdict.findings[0];
    assert_eq!(finding.site.as_deref(), Some("receive"));
    let headline = &finding.headline;
    assert!(headline.contains("never touched"), "{headline}");
    let told = "`receive` (planted.c:12) allocates 10 blocks of 95.3 MiB";
    assert!(headline.contains(told), "{headline}");
}

#[test]
fn figures_that_make_no_sense_are_survived() {
    let ledger = Ledger {
        requested: u64::MAX,
        rounding: u64::MAX,
        untouched: u64::MAX,
        slab_free: u64::MAX,
        tails: u64::MAX,
        stacks_used: u64::MAX,
        stacks_free: 5,
        ..Ledger::default()
    };
    let most = Figures {
        alloc_objects: 0,
        alloc_bytes: u64::MAX,
        alloc_usable: u64::MAX,
        live_objects: u64::MAX,
        live_bytes: u64::MAX,
        live_usable: u64::MAX,
    };
    let samples = [sample(u64::MAX, u64::MAX, ledger), sample(0, 1, ledger)];
    let verdict = verdict(&samples, vec![stack("much", most), stack("more", most)]);
    assert!(!verdict.opening.is_empty());
}

#[test]
fn a_heap_that_was_never_told_has_its_reasons() {
    let silent = Sample {
        t_ms: 900,
        pid: 7,
        rss: 50 * MB,
        ..Sample::default()
    };
    let opening = verdict(&[silent], Vec::new()).opening;
    for words in [
        "47.6 MiB in RAM",
        "not known: the process never reported",
        "had no purge thread",
        "in a sandbox",
    ] {
        assert!(opening.contains(words), "{opening}");
    }
    let told = of_ledger(calm()).opening;
    assert!(!told.contains("not known"), "{told}");
}

#[test]
fn what_came_and_went_between_two_samples_is_told() {
    let told = |most_rss| Heap {
        most_rss,
        ..Heap::default()
    };
    let opening = |most_rss| {
        let quiet = Sample {
            rss: 20 * MB,
            ..Sample::default()
        };
        verdict(&[quiet.with(told(most_rss))], Vec::new()).opening
    };
    assert!(opening(90 * MB).contains("85.8 MiB in RAM, between 0.0 s and 0.0 s"));
    assert!(!opening(20 * MB).contains("between"));
}
