//! A program that links this crate without naming anything of it has the instruments. The heap
//! reads its options at the first allocation, so the instruments must be installed before that.

use neap_heap::hook;
use neap_instruments as _;

#[test]
fn the_constructor_ran() {
    assert!(
        !hook::instruments().locks().is_empty(),
        "the linker dropped the constructor"
    );
}
