//! The process's private state of the status page.

use neap_heap::base::sync::{AtomicBool, AtomicU64, UnsafeCell};
use neap_heap::os::lock::{Lock, Rank};
use neap_heap::os::shared::Shared;
use neap_shared::stats::Snapshot;

/// An observer made at least one request, or a monitor received the status page: write the last
/// figures.
#[unsafe(link_section = "neap_fork")]
pub(super) static AWAITED: AtomicBool = AtomicBool::new(false);

/// See the head of this file.
pub(super) struct Private {
    /// guarded by: [`LOCK`]
    pub(super) inner: UnsafeCell<Inner>,
    /// When an allocating thread first saw a pending request, in ms; 0: none.
    pub(super) asked_at: AtomicU64,
    /// When the figures may next be written for single requests, and for a watching observer, in
    /// ns.
    pub(super) next_at: [AtomicU64; 2],
    /// When the figures were last written, in ms.
    pub(super) written_at: AtomicU64,
    /// When the next purge, or change of sampling or guards, may be carried out on request, in ms.
    pub(super) act_at: AtomicU64,
}

pub(super) struct Inner {
    pub(super) shared: Option<Shared>,
    pub(super) figures: Snapshot,
    pub(super) written: u64,
    pub(super) cost_ns: u64,
}

// SAFETY: `inner` is reached only under `LOCK`.
unsafe impl Sync for Private {}

/// Guards [`STATUS_PAGE`]. Held by the thread that serves.
pub(crate) static LOCK: Lock = Lock::new(Rank::StatusPage);

/// All zero at first, so that it takes no room in the library's file.
#[unsafe(link_section = ".bss.neap_tables")]
pub(super) static STATUS_PAGE: Private = Private {
    inner: UnsafeCell::new(Inner {
        shared: None,
        // SAFETY: 64-bit words only, for which zeros are a value.
        figures: unsafe { core::mem::zeroed() },
        written: 0,
        cost_ns: 0,
    }),
    asked_at: AtomicU64::new(0),
    next_at: [const { AtomicU64::new(0) }; 2],
    written_at: AtomicU64::new(0),
    act_at: AtomicU64::new(0),
};
