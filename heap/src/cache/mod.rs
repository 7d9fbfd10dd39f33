//! Magazines over bitmaps: the fast path, refill, flush, draining, thread end.

pub mod bell;
#[cfg(all(test, loom))]
mod bell_models;
#[cfg(not(loom))]
pub mod budget;
#[cfg(not(loom))]
mod colour;
#[cfg(not(loom))]
pub mod counted;
#[cfg(not(loom))]
pub mod decay;
#[cfg(not(loom))]
pub mod door;
#[cfg(not(loom))]
pub mod drain;
#[cfg(not(loom))]
pub mod fast;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
pub mod gather;
#[cfg(not(loom))]
pub mod heap;
pub mod magazine;
#[cfg(all(test, loom))]
mod magazine_models;
#[cfg(not(loom))]
pub mod meta;
#[cfg(not(loom))]
pub mod misuse;
#[cfg(not(loom))]
pub mod pace;
#[cfg(not(loom))]
pub mod pressure;
#[cfg(not(loom))]
pub mod registry;
#[cfg(not(loom))]
pub mod slot;
#[cfg(not(loom))]
pub mod slow;
#[cfg(not(loom))]
pub mod thread;
