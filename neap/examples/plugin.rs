//! A library with Neap inside, for a host that opens and closes it (`neap/tests/plugin.rs`).

#[global_allocator]
static ALLOCATOR: neap::Neap = neap::Neap;

/// Allocates and frees `count` strings. Returns the sum of their lengths.
#[unsafe(no_mangle)]
pub extern "C" fn work(count: usize) -> usize {
    let strings: Vec<_> = (0..count).map(|number| number.to_string()).collect();
    strings.iter().map(String::len).sum()
}

/// Starts the purge thread.
#[unsafe(no_mangle)]
pub extern "C" fn purge() {
    neap::purge::enable_thread();
    neap::purge::all();
}
