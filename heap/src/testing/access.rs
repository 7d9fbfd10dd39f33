//! Tells AddressSanitizer and valgrind which memory of a fake system may be accessed. To the tools,
//! such a system's memory is one ordinary allocation. Also tells valgrind what the kernel wrote by
//! a call that valgrind does not know. Without a tool, nothing happens.

use core::ptr::NonNull;

/// Whether memory may be accessed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    Denied,
    /// Its contents are defined, too.
    Allowed,
}

/// Sets whether a range of the tests' own memory may be accessed.
pub(super) fn set(addr: NonNull<u8>, bytes: usize, access: Access) {
    tell_address_sanitizer(addr, bytes, access);
    tell_valgrind(addr, bytes, access);
}

/// The kernel wrote these values.
pub(super) fn kernel_wrote<T>(values: &[T]) {
    set(
        NonNull::from(values).cast(),
        size_of_val(values),
        Access::Allowed,
    );
}

#[cfg(not(sanitized = "address"))]
fn tell_address_sanitizer(_: NonNull<u8>, _: usize, _: Access) {}

#[cfg(sanitized = "address")]
fn tell_address_sanitizer(addr: NonNull<u8>, bytes: usize, access: Access) {
    unsafe extern "C" {
        fn __asan_poison_memory_region(addr: *const u8, bytes: usize);
        fn __asan_unpoison_memory_region(addr: *const u8, bytes: usize);
    }
    // SAFETY: the functions change the sanitizer's own records, of memory that belongs to the test.
    unsafe {
        match access {
            Access::Denied => __asan_poison_memory_region(addr.as_ptr(), bytes),
            Access::Allowed => __asan_unpoison_memory_region(addr.as_ptr(), bytes),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn tell_valgrind(_: NonNull<u8>, _: usize, _: Access) {}

/// A client request of memcheck's (`valgrind.h`, `memcheck.h`). Valgrind recognises the rotations,
/// which add up to 128 bits and so change nothing without it.
#[cfg(target_arch = "x86_64")]
fn tell_valgrind(addr: NonNull<u8>, bytes: usize, access: Access) {
    const MEMCHECK: usize = (b'M' as usize) << 24 | (b'C' as usize) << 16;
    let number = match access {
        Access::Denied => 0,
        Access::Allowed => 2,
    };
    let request = [MEMCHECK + number, addr.as_ptr().addr(), bytes, 0, 0, 0];
    // SAFETY: outside valgrind, four rotations that undo each other, and an exchange of a register
    // with itself. Valgrind reads the request and changes only its own records.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_usize => _,
            out("rdi") _,
            options(nostack),
        );
    }
}
