//! The façade for atomics and cells. No other file names them, so that a model checker can replace
//! them (`--cfg loom`).

pub use core::cell::UnsafeCell;

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize, Ordering, fence,
};

#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize, Ordering, fence,
};

/// A full barrier for the place right after an atomic read-modify-write.
///
/// On x86-64 the `lock` prefix of that operation is already a full barrier. There this function
/// costs nothing and only keeps the compiler from moving loads up.
#[inline(always)]
pub fn full_barrier_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

/// The cheap side of an asymmetric barrier; another thread runs the expensive side
/// (`os::thread::heavy_barrier`). Keeps the compiler from reordering around it and costs no
/// instruction. Under the model checker it is the fence that the expensive side forces on this
/// thread.
#[inline(always)]
pub fn light_barrier() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    if !LACKS_BARRIERS.get() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(loom)]
std::thread_local! {
    /// Whether the expensive side forces no fence, because it is left out or the kernel refuses it.
    pub static LACKS_BARRIERS: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Atomics that a model checker need not see: caches of constants, and data whose every writer
/// holds a lock. They are always the machine's, so their constructors stay `const`.
pub mod plain {
    pub use core::sync::atomic::{
        AtomicBool, AtomicI8, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16,
        AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}
