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

#[test]
fn a_leak_that_grows_says_so_once() {
    let samples = growing(|index| (index + 1) * MB);
    let verdict = verdict(&samples, vec![stack("forget", blocks(40_000, 1000, 1000))]);
    assert_eq!(kinds(&verdict), ["leak"]);
    assert!(verdict.findings[0].detail.contains("still growing"));
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
        "not known: the process reported it 0.1 s before that and 5.9 s after it",
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
    assert!(
        finding
            .headline
            .starts_with("The memory of slabs and large blocks grew until the end"),
        "{}",
        finding.headline
    );
    assert!(finding.detail.contains("page heap's own count"));
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
