//! Memory that grows until the end, also that of a server which reports nothing until then.

use super::*;

fn growing(bytes: impl Fn(u64) -> u64) -> Vec<Sample> {
    let at = |index: u64| {
        let ledger = Ledger {
            requested: bytes(index),
            resident: bytes(index),
            ..Ledger::default()
        };
        sample(index * 100, bytes(index) + MB, ledger)
    };
    (0..40).map(at).collect()
}

#[test]
fn growth_until_the_end_is_told_and_a_plateau_is_not() {
    let grows = verdict(&growing(|index| (index + 1) * MB), Vec::new());
    assert_eq!(kinds(&grows), ["growth"]);
    assert!(grows.findings[0].remedy.contains("--profile"));
    let stays = verdict(&growing(|index| (index + 1).min(15) * 3 * MB), Vec::new());
    assert_eq!(kinds(&stays), [""; 0]);
    let ends = verdict(&growing(|index| (index + 1).min(22) * 3 * MB), Vec::new());
    assert_eq!(kinds(&ends), [""; 0]);
    let saw = verdict(&growing(|index| (index % 7 + 1) * 10 * MB), Vec::new());
    assert_eq!(kinds(&saw), [""; 0]);
}

/// 36 MB in 3.6 s, all freed within the last 0.4 s.
fn torn_down() -> Vec<Sample> {
    growing(|index| if index < 36 { (index + 1) * MB } else { MB })
}

#[test]
fn growth_is_judged_before_the_teardown() {
    let verdict = verdict(&torn_down(), Vec::new());
    assert_eq!(kinds(&verdict), ["growth"]);
    let headline = &verdict.findings[0].headline;
    let words = "grew until 3.5 s, when the program began to free it: from 18.1 MiB to 34.3 MiB";
    assert!(headline.contains(words), "{headline}");
    // A burst half-way is none.
    let burst = growing(|index| if index < 20 { (index + 1) * MB } else { MB });
    assert_eq!(kinds(&super::verdict(&burst, Vec::new())), [""; 0]);
}

#[test]
fn growth_is_named_by_place() {
    let at = |ms, stacks| {
        let profile = Profile {
            stacks,
            ..Profile::default()
        };
        (ms, profile)
    };
    let load = || stack("load", blocks(2_000, 1000, 1000));
    let early = at(
        1000,
        vec![stack("login", blocks(10_000, 1000, 1000)), load()],
    );
    let peak = at(
        3500,
        vec![stack("login", blocks(36_000, 1000, 1000)), load()],
    );
    let end = vec![stack("login", blocks(1, 1000, 1000))];
    let verdict = verdict_of(&torn_down(), end, Some(&peak), Some(&early));
    assert_eq!(kinds(&verdict), ["growth"]);
    assert_eq!(
        verdict.findings[0].headline,
        "`login` (planted.c:12) grew by 24.7 MiB from 1.0 s to 3.5 s: 9.9 MiB a second."
    );
    // What stays is a leak that tells its growth; what was there early on is none.
    let end = vec![stack("login", blocks(36_000, 1000, 1000)), load()];
    let verdict = verdict_of(&growing(|index| (index + 1) * MB), end, None, Some(&early));
    assert_eq!(kinds(&verdict), ["leak"]);
    let headline = &verdict.findings[0].headline;
    assert!(
        headline.contains("the place grew by 24.7 MiB from 1.0 s"),
        "{headline}"
    );
}

/// What it has held for less than a second may be a leak, whenever it started.
#[test]
fn a_process_that_starts_late_is_judged_from_its_own_start() {
    let samples = growing(|_| 20 * MB).into_iter().take(8);
    let later = |sample: Sample| Sample {
        t_ms: sample.t_ms + 60_000,
        ..sample
    };
    let samples: Vec<_> = samples.map(later).collect();
    let stacks = || vec![stack("load", blocks(20_000, 1000, 1000))];
    let early = Profile {
        stacks: stacks(),
        ..Profile::default()
    };
    let verdict = verdict_of(&samples, stacks(), None, Some(&(60_300, early)));
    assert_eq!(kinds(&verdict), ["leak"]);
    let headline = &verdict.findings[0].headline;
    assert!(headline.contains("held about as much"), "{headline}");
}

/// Three samples do not tell how fast it grew, but early on there was none.
#[test]
fn a_leak_of_few_samples_is_one_all_the_same() {
    let early = Profile {
        rate: 512 << 10,
        ..Profile::default()
    };
    let stacks = vec![stack("forget", blocks(1_500, 1000, 1000))];
    let verdict = verdict_of(&growing(|_| 2 * MB), stacks, None, Some(&(1000, early)));
    assert_eq!(kinds(&verdict), ["leak"]);
    let headline = &verdict.findings[0].headline;
    assert!(!headline.contains("the place"), "{headline}");
}

#[test]
fn a_leak_that_grows_says_so_once() {
    let samples = growing(|index| (index + 1) * MB);
    let verdict = verdict(&samples, vec![stack("forget", blocks(40_000, 1000, 1000))]);
    assert_eq!(kinds(&verdict), ["leak"]);
    assert!(verdict.findings[0].detail.contains("grew until the end"));
}

/// A server with 130 MB that first answers at its end, when all is freed and still resident.
fn silent_server(slabs: impl Fn(u64) -> u64) -> Vec<Sample> {
    let told = |age_ms, rss, requested| Heap {
        age_ms,
        rss,
        spans: Some(Spans::default()),
        ledger: Ledger {
            requested,
            free_dirty: rss - requested,
            resident: rss,
            ..Ledger::default()
        },
        ..Heap::default()
    };
    let tick = |tick: u64| Sample {
        t_ms: tick * 100,
        pid: 7,
        rss: slabs(tick) + 2 * MB,
        spans: Some(Spans {
            slabs: slabs(tick),
            ..Spans::default()
        }),
        ..Sample::default()
    };
    let mut samples: Vec<_> = (1..60)
        .map(|at| tick(at).with(told(at * 100, 2 * MB, 600)))
        .collect();
    let last = told(0, slabs(60) + 2 * MB, 544);
    samples.push(Sample { rss: 0, ..tick(60) }.with(last));
    samples
}

#[test]
fn a_ledger_of_another_moment_judges_nothing() {
    let verdict = verdict(&silent_server(|_| 130 * MB), Vec::new());
    assert_eq!(kinds(&verdict), [""; 0]);
    for words in [
        "At most it had 125.8 MiB in RAM",
        "0.1 s after its start. What its heap held then is not known",
        "slabs and large blocks took 123.9 MiB",
    ] {
        assert!(verdict.opening.contains(words), "{}", verdict.opening);
    }
    assert!(!verdict.opening.contains("544"), "{}", verdict.opening);
}

#[test]
fn a_leak_of_a_process_that_tells_nothing_is_seen_by_the_page_heaps_own_count() {
    let verdict = verdict(&silent_server(|tick| tick * MB), Vec::new());
    assert_eq!(kinds(&verdict), ["growth"]);
    let finding = &verdict.findings[0];
    let words = "slabs and large blocks, by the page heap's own count, grew until the end";
    assert!(finding.headline.contains(words), "{}", finding.headline);
}

#[test]
fn a_leak_that_is_a_large_part_of_a_small_program_is_told() {
    // Of 3 MB, 1.5 MB stay.
    let ledger = Ledger {
        requested: 1_600_000,
        resident: 1_600_000,
        ..Ledger::default()
    };
    let samples = [sample(100, 3 * MB, ledger)];
    let small = |bytes: u64| {
        let stacks = vec![
            stack("forget", blocks(bytes / 1000, 1000, 1000)),
            stack("keep", blocks(100, 1000, 1000)),
        ];
        verdict(&samples, stacks)
    };
    assert_eq!(kinds(&small(1_500_000)), ["leak"]);
    // Too little to report.
    assert_eq!(kinds(&small(200_000)), [""; 0]);
    // A small part of a large program.
    let large = [sample(100, 100 * MB, ledger)];
    let stacks = vec![stack("forget", blocks(1_500, 1000, 1000))];
    assert!(!kinds(&verdict(&large, stacks)).contains(&"leak"));
    let grows = growing(|index| 500_000 + index * 50_000);
    assert_eq!(kinds(&verdict(&grows, Vec::new())), ["growth"]);
}
