//! What the kernel tells a handler about what it interrupted.

use core::ffi::c_void;

/// A fault that the kernel reported.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The address that could not be accessed.
    pub address: usize,
    /// The instruction; 0 if unknown.
    pub pc: usize,
    /// What it did.
    pub access: Access,
}

/// What an instruction did that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It read.
    Read,
    /// It wrote.
    Write,
    /// The kernel does not tell.
    Unknown,
}

/// # Safety
/// - The arguments are those of a handler of a fault.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) unsafe fn fault_of(info: *mut libc::siginfo_t, context: *mut c_void) -> Fault {
    // SAFETY: the caller's promise.
    let (address, registers) = unsafe {
        let context = context.cast::<libc::ucontext_t>();
        ((*info).si_addr().addr(), (*context).uc_mcontext.gregs)
    };
    Fault {
        address,
        pc: registers[libc::REG_RIP as usize] as usize,
        // The second bit of the processor's error code.
        access: match registers[libc::REG_ERR as usize] & 2 {
            0 => Access::Read,
            _ => Access::Write,
        },
    }
}

/// # Safety
/// - The arguments are those of a handler of a fault.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(super) unsafe fn fault_of(info: *mut libc::siginfo_t, context: *mut c_void) -> Fault {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's promise.
    let pc = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc as usize };
    #[cfg(not(target_arch = "aarch64"))]
    let (pc, _) = (0, context);
    Fault {
        // SAFETY: the caller's promise.
        address: unsafe { (*info).si_addr().addr() },
        pc,
        access: Access::Unknown,
    }
}
