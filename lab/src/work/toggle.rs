//! Valgrind's client request "toggle collection", which makes callgrind count a stretch of the
//! worker and nothing before or after it. Outside valgrind it has no effect.
//!
//! The request is a sequence that valgrind recognises: four rotations of rdi by 128 bits in total
//! and an exchange of a register with itself, with the address of six words in rax.

use std::ffi::c_void;

/// Whether counting works on this architecture; others need another sequence.
pub const SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// `VG_USERREQ_TOOL_BASE('C', 'T') + 2` of valgrind's callgrind.h, and five arguments.
#[cfg(target_arch = "x86_64")]
static TOGGLE_COLLECT: [u64; 6] = [0x4354_0002, 0, 0, 0, 0, 0];

/// Switches callgrind's counting on or off.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn toggle() {
    // SAFETY: the sequence changes only rdx, and valgrind reads six words.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") TOGGLE_COLLECT.as_ptr(), inout("rdx") 0u64 => _, options(nostack)
        );
    }
}

/// Calls `function(a, b)` with the counting on. The code counted around the function is written
/// here and not left to the compiler, so that a call of [`nothing`] costs the same. Callgrind adds
/// up a straight run of code when the next one begins, so the run that ends in the first request
/// counts as well. The jump before it keeps the caller's code out.
///
/// # Safety
/// - `function` is a C function of at most two integer or pointer arguments that does not unwind.
/// - Its own preconditions hold for `a` and `b`.
#[cfg(target_arch = "x86_64")]
pub unsafe fn counted_call(function: *const c_void, a: usize, b: usize) -> usize {
    let mut result = a;
    // SAFETY: as in `toggle`; the C function keeps r12 to r15, and all else is declared lost.
    unsafe {
        core::arch::asm!(
            "jmp 2f", "2:", "mov rax, r13", "xor edx, edx",
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            "mov rdi, r14", "mov rsi, r15", "call r12", "mov r14, rax",
            "mov rax, r13", "xor edx, edx",
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("r12") function, in("r13") TOGGLE_COLLECT.as_ptr(),
            inout("r14") result, in("r15") b, clobber_abi("C")
        );
    }
    result
}

/// The address of a function that only returns.
#[cfg(target_arch = "x86_64")]
pub fn nothing() -> *const c_void {
    #[unsafe(naked)]
    extern "C" fn only_returns() {
        core::arch::naked_asm!("ret")
    }
    only_returns as *const c_void
}

/// Other architectures: no effect.
#[cfg(not(target_arch = "x86_64"))]
pub fn toggle() {}

/// Other architectures: never called, see [`SUPPORTED`].
///
/// # Safety
/// - None here.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn counted_call(_function: *const c_void, _a: usize, _b: usize) -> usize {
    unreachable!("nothing is counted on this machine")
}

/// Other architectures: no function.
#[cfg(not(target_arch = "x86_64"))]
pub fn nothing() -> *const c_void {
    std::ptr::null()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn a_counted_call_hands_over_both_arguments_and_the_result() {
        extern "C" fn difference(a: usize, b: usize) -> usize {
            a - b
        }
        // SAFETY: the function takes two integers and does not unwind for these.
        let result = unsafe { counted_call(difference as *const c_void, 50, 8) };
        assert_eq!(result, 42);
    }
}
