//! The façade for atomics and cells: the only file that names them, so that a
//! model checker can stand in (`--cfg loom`).

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
/// On x86-64 the `lock` prefix of the operation before it is that barrier already, so this costs
/// nothing there; it only keeps the compiler from moving loads up.
#[inline(always)]
pub fn full_barrier_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

/// The cheap side of an asymmetric barrier: another thread runs the dear side
/// (`os::thread::heavy_barrier`). Keeps the compiler from reordering around it and costs no
/// instruction; under the model checker it is the fence that the dear side forces on this thread.
#[inline(always)]
pub fn light_barrier() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Atomics that a model checker has no need to see: caches of constants, and data whose every
/// writer holds a lock. Always the machine's, so their constructors stay `const`.
pub mod plain {
    pub use core::sync::atomic::{
        AtomicBool, AtomicI8, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16,
        AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}
