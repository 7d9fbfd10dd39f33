//! A program that links this crate, and names nothing of it, has the instruments: the heap reads
//! its options at the first allocation, so they must be installed before.

use neap_heap::hook;
use neap_instruments as _;

#[test]
fn the_constructor_ran() {
    assert!(
        !hook::instruments().locks().is_empty(),
        "the linker dropped the constructor"
    );
}
