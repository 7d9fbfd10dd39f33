//! The façade for atomics and cells: the only file that names them, so that a
//! model checker can stand in (`--cfg loom`).

#[cfg(not(loom))]
pub use core::cell::UnsafeCell;
#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize, Ordering, compiler_fence, fence,
};

#[cfg(loom)]
pub use core::cell::UnsafeCell;
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize, Ordering, fence,
};
