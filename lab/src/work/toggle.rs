//! Valgrind's client request "toggle collection", so that callgrind counts a stretch of the
//! worker and nothing before or after it. Outside of valgrind it does nothing.

/// Switches callgrind's counting on or off.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn toggle() {
    /// `VG_USERREQ_TOOL_BASE('C', 'T') + 2`, of valgrind's callgrind.h.
    const TOGGLE_COLLECT: u64 = 0x4354_0002;
    let request: [u64; 6] = [TOGGLE_COLLECT, 0, 0, 0, 0, 0];
    // SAFETY: the four rotations add up to 128 bits and leave rdi as it was, the exchange is
    // of a register with itself; valgrind recognises the sequence and reads the six words.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") request.as_ptr(), inout("rdx") 0u64 => _, options(nostack)
        );
    }
}

/// Whether [`toggle`] can work on this machine.
pub const SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// Other machines: the sequence is another, nothing is counted there.
#[cfg(not(target_arch = "x86_64"))]
pub fn toggle() {}
