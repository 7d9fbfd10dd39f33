//! The entry points that every frontend shares.
//!
//! All of them keep `errno`, return null when out of memory, and abort with one line on misuse.

mod allocate;
pub mod attach;
mod check;
mod classes;
pub mod fork;
mod large;
pub mod profile;
pub mod purge;
mod release;
mod resize;
mod sizes;
pub mod stack;
mod start;
mod statistics;
mod survey;
mod trim;

pub use allocate::{
    allocate, allocate_aligned, allocate_hit, allocate_layout, allocate_layout_zeroed,
    allocate_missed, allocate_zeroed, allocate_zeroed_hit, allocate_zeroed_missed, initialize,
};
pub use release::{free, free_aligned_sized, free_deleted, free_sized, usable_size};
pub use resize::{reallocate, reallocate_layout};
pub use start::{ask_no_more, begin, deepbind_kept, note_address_limit, note_mapped_over, open};
pub use statistics::ends_at_once;
pub use survey::{Brief, brief, snapshot, snapshot_into, with_snapshot};
pub use trim::{check_consistency, give_up_rest, keep_free, purge_all};

/// No block is larger: pointer differences inside it must fit `isize`.
pub const MAX_BYTES: usize = isize::MAX as usize;
