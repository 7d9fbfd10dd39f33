//! The figures of the heap at one moment, and the ledger, in which every byte has one line.
//!
//! ```
//! use neap::stats::{Bytes, Text, snapshot};
//!
//! let figures = snapshot();
//! println!("{} live, {} free in slabs", Bytes(figures.live), Bytes(figures.slab_free));
//! println!("{}", Text(&figures));
//! assert_eq!(figures.ledger.sum(), i128::from(figures.ledger.resident));
//! ```

use neap_heap::init;
use neap_instruments::survey;

#[doc(inline)]
pub use neap_shared::ledger::{Ledger, Line, Requested, Sign};
#[doc(inline)]
pub use neap_shared::stats::{
    Bytes, ClassFigures, Counted, Json, Snapshot, SpanFigures, Text, USE_NAMES,
};

/// Takes the figures of the heap. It visits all slabs and asks the kernel about all pages, which
/// takes milliseconds per GiB, so it is for reports and not for hot paths. The figures are exact if
/// no other thread allocates meanwhile.
///
/// Uses 20 KiB of stack. On a smaller stack, use [`snapshot_into`].
pub fn snapshot() -> Snapshot {
    init::initialize();
    survey::snapshot()
}

/// Like [`snapshot`], but in place: for figures on the heap, and for callers on a small stack.
pub fn snapshot_into(figures: &mut Snapshot) {
    init::initialize();
    survey::snapshot_into(figures);
}
