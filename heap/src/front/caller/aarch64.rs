//! The return address is in the link register.

use crate::front::release::free_slow_from;

/// [`free_slow_from`] with the return address of the caller as its second argument.
#[unsafe(naked)]
pub extern "C" fn free_slow(block: *mut u8) {
    core::arch::naked_asm!("mov x1, x30", "b {slow}", slow = sym free_slow_from)
}
