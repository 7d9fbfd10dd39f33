//! Magazines over bitmaps: the fast path, refill, flush, draining, thread end.

pub mod budget;
pub mod drain;
pub mod gather;
pub mod heap;
pub mod magazine;
pub mod meta;
pub mod misuse;
pub mod registry;
pub mod slot;
pub mod slow;
pub mod thread;
