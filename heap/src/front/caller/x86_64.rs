//! The return address is on top of the stack.

use crate::front::release::free_slow_from;

/// [`free_slow_from`] with the return address of the caller as its second argument.
#[unsafe(naked)]
pub extern "C" fn free_slow(block: *mut u8) {
    core::arch::naked_asm!("mov rsi, [rsp]", "jmp {slow}", slow = sym free_slow_from)
}
