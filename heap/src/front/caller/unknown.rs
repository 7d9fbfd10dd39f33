//! Fallback: the return address is unavailable on this architecture.

use crate::front::release::free_slow_from;

/// [`free_slow_from`] with 0 as the return address.
pub extern "C" fn free_slow(block: *mut u8) {
    free_slow_from(block, 0);
}
