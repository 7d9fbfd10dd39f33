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

/// Takes the figures of the heap. Visits all slabs and asks the kernel about all pages, which takes
/// milliseconds per GiB: for reports, not for hot paths. Exact while no other thread allocates.
///
/// Uses 20 KiB of stack; on a smaller one, see [`snapshot_into`].
pub fn snapshot() -> Snapshot {
    init::initialize();
    survey::snapshot()
}

/// Like [`snapshot`], in place: for figures that are on the heap, and callers on a small stack.
pub fn snapshot_into(figures: &mut Snapshot) {
    init::initialize();
    survey::snapshot_into(figures);
}
