//! System calls by instructions of our own: a fork's child that only ends would pay a page fault
//! for each part of the C library that it touches.

/// Calls the kernel. The negative number of an error, else the answer. Leaves `errno` alone.
///
/// # Safety
/// - As the call of this number with these arguments; it neither makes a process nor a thread.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    let answer;
    // SAFETY: the kernel changes three registers, which are named, and what the caller allows.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Calls the kernel. The negative number of an error, else the answer. Leaves `errno` alone.
///
/// # Safety
/// - As the call of this number with these arguments; it neither makes a process nor a thread.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    let answer;
    // SAFETY: the kernel changes one register, which is named, and what the caller allows.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a as isize => answer,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            options(nostack),
        );
    }
    answer
}

/// Calls the kernel by the C library. -1 for an error, else the answer.
///
/// # Safety
/// - As the call of this number with these arguments; it neither makes a process nor a thread.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn call(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    // SAFETY: the caller's promise.
    crate::os::errno::keep_errno(|| unsafe { libc::syscall(number, a, b, c, d) as isize })
}
