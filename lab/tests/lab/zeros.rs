//! `calloc` as a user runs it, with tiny sizes: checks which heap is used, and what must hold on
//! every machine. No assertion depends on time.

use crate::skips::announce;
use crate::stage::{figure, folder, json, lab, text};
use std::path::PathBuf;

/// The number after `key` in a worker's report; `None` if the worker does not know it.
fn number(arguments: &[&str], key: &str) -> Option<f64> {
    let output = lab(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    let heap = report
        .lines()
        .find_map(|line| line.strip_prefix("heap="))
        .expect("no heap");
    assert!(heap.contains("libc"), "{heap}");
    let line = report.lines().find_map(|line| line.strip_prefix(key));
    if line.is_none() {
        let errors = text(&output.stderr);
        assert!(errors.contains("are unknown: "), "{errors}");
        announce(&errors);
    }
    line.map(|number| number.parse().expect("no number"))
}

const MIB: u64 = 1 << 20;

/// Bytes that `calloc` zeroes of a block of `bytes` after two pairs.
fn zeroed(touch: &str, bytes: u64) -> Option<f64> {
    let bytes = bytes.to_string();
    number(
        &["worker", "calloc", touch, &bytes, "--account", "2"],
        "zeroed=",
    )
}

/// glibc keeps a freed block of this size in its heap, whose pages it cannot know to be zero.
#[test]
fn glibc_zeroes_every_byte_of_a_block_it_used_before() {
    for touch in ["none", "all"] {
        if let Some(zeroed) = zeroed(touch, MIB) {
            assert!(
                zeroed >= 0.99 * MIB as f64 && zeroed <= MIB as f64,
                "{zeroed}"
            );
        }
    }
}

#[test]
fn fresh_pages_of_the_kernel_are_not_counted_as_zeroed() {
    // Over 32 MiB glibc maps and unmaps each block; its header shares the block's first page.
    if let Some(zeroed) = zeroed("first", 40 * MIB) {
        assert_eq!(zeroed, 0.0);
    }
}

#[test]
fn a_page_touched_in_a_fresh_mapping_is_a_fault() {
    let bytes = (40 * MIB).to_string();
    let run = |touch: &str| {
        let arguments = ["worker", "calloc", touch, &bytes, "--milliseconds", "1"];
        number(&arguments, "minor_faults=").expect("no faults")
    };
    // SAFETY: the call has no precondition.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let (none, all) = (run("none"), run("all"));
    // If the system gives huge pages to every process, one fault brings many pages.
    let thp = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let pages = if thp.unwrap_or_default().contains("[always]") {
        40 * MIB / (2 << 20)
    } else {
        40 * MIB / page
    };
    assert!(
        all >= pages as f64 && none < 16.0,
        "{all} faults, {none} untouched"
    );
}

#[test]
fn a_campaign_leaves_a_record_that_can_be_shown() {
    let records = folder("calloc");
    let records = records.to_str().expect("a path of text");
    let only = ["--peers", "glibc", "--only", "64K,1M,first"];
    let arguments = [&["calloc", "--quick", "--records", records][..], &only].concat();
    let output = lab(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables = text(&output.stdout);
    for part in [
        "The first 64 KiB touched: page faults",
        "version of glibc: ",
    ] {
        assert!(tables.contains(part), "no {part:?} in {tables}");
    }
    let files = std::fs::read_dir(records).expect("no folder of records");
    let files: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    let with = |extension: &str| {
        let mut found = files
            .iter()
            .filter(|f| f.extension().is_some_and(|e| e == extension));
        found
            .next()
            .expect("no such file")
            .to_str()
            .expect("a path of text")
    };
    let picture = std::fs::read_to_string(with("svg")).expect("no picture");
    assert_eq!(picture.matches("<polyline").count(), 1);
    let shown = text(&lab(&["show", with("csv")]).stdout);
    assert!(tables.contains(shown.trim()), "{shown}");
}

#[test]
fn a_campaigns_figures_are_of_the_allocator_they_name() {
    let arguments = [
        "calloc", "--quick", "--json", "--peers", "glibc", "--only", "1M,none",
    ];
    let campaign = json(&arguments);
    let of_glibc = |name| figure(&campaign, "1M none", "glibc", name);
    assert!(
        of_glibc("time of a pair")
            .as_f64()
            .is_some_and(|ns| ns > 0.0)
    );
    let zeroed = of_glibc("zeroed");
    assert!(
        *zeroed == "unknown" || zeroed.as_f64() > Some(0.9 * MIB as f64),
        "{zeroed}"
    );
}
