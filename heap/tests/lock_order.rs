//! The table of locks (`src/os/lock_order.rs`) is what the code does.

use neap_heap::cache::heap::HEAP;
use neap_heap::os::lock_order::{ORDER, Rank};
use std::fs;
use std::path::Path;

/// The heap's, which stand below the instruments'.
fn of_the_heap() -> impl Iterator<Item = Rank> {
    let ranks = ORDER.iter().map(|row| row.rank);
    ranks.filter(|&rank| rank >= Rank::Step)
}

#[test]
fn a_fork_closes_the_heaps_locks_in_the_order_of_the_table() {
    let mut closed = Vec::new();
    HEAP.each_lock(&mut |lock| closed.push(lock.rank()));
    closed.dedup();
    assert!(of_the_heap().eq(closed.iter().copied()), "{closed:?}");
}

/// The text of all files below a folder.
fn text_below(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let texts = entries.map(|entry| match entry.path() {
        path if path.is_dir() => text_below(&path),
        path => fs::read_to_string(path).unwrap(),
    });
    texts.collect()
}

#[test]
fn every_line_of_the_table_is_some_locks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let code = text_below(&root.join("heap/src")) + &text_below(&root.join("instruments/src"));
    for row in ORDER {
        let made = format!("::new(Rank::{:?})", row.rank);
        assert!(code.contains(&made), "no lock is a {}", row.name);
    }
}
