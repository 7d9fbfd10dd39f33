//! The monitor: a process that receives the descriptors of status pages and profiles at a socket.

use neap_heap::base::sync::UnsafeCell;
use neap_heap::os::process;
use neap_heap::os::shared::Shared;
use neap_shared::status_page::GREETING;

/// The path of a socket; empty: there is no monitor.
struct Monitor(UnsafeCell<Name>);

// SAFETY: written while the process has one thread.
unsafe impl Sync for Monitor {}

#[derive(Clone, Copy)]
struct Name {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

const NAME_BYTES: usize = 107;

static MONITOR: Monitor = Monitor(UnsafeCell::new(Name {
    bytes: [0; NAME_BYTES],
    len: 0,
}));

/// Keeps the path of the monitor's socket. False if it is too long for one.
///
/// # Safety
/// - The process has one thread.
pub(super) unsafe fn keep(path: &[u8]) -> bool {
    // SAFETY: the caller's promise.
    let name = unsafe { &mut *MONITOR.0.get() };
    let Some(room) = name.bytes.get_mut(..path.len()) else {
        return false;
    };
    room.copy_from_slice(path);
    name.len = path.len();
    true
}

fn path() -> &'static [u8] {
    // SAFETY: written while the process had one thread, and never since.
    let name = unsafe { &*MONITOR.0.get() };
    &name.bytes[..name.len]
}

/// Whether there is a monitor.
pub(super) fn is_known() -> bool {
    !path().is_empty()
}

/// Sends the monitor, if there is one, the descriptor of what is `shared`. `kind` is one of
/// `neap_shared::status_page::KIND_*`.
pub(crate) fn tell(shared: &Shared, kind: u64) {
    if is_known() {
        let words = [GREETING, kind, process::process_id() as u64];
        shared.hand_to(path(), words);
    }
}
