//! The entry points that every frontend shares.
//!
//! All of them keep `errno`, return null when out of memory, and abort with one line on misuse.

mod allocate;
mod classes;
pub mod fork;
mod large;
pub mod purge;
mod release;
mod resize;
pub mod stack;
mod start;
mod trim;

pub use allocate::{
    allocate, allocate_aligned, allocate_hit, allocate_layout, allocate_layout_zeroed,
    allocate_missed, allocate_zeroed, allocate_zeroed_hit, allocate_zeroed_missed, entered,
    initialize,
};
pub use large::bytes as large_bytes;
pub use release::{
    free, free_aligned_sized, free_deleted, free_found, free_sized, start_of, usable_size,
};
pub use resize::{reallocate, reallocate_layout};
pub use start::{
    Frontend, address_limit_changed, ask_no_more, begin, deepbind_kept, frontend, note_mapped_over,
    open, set_frontend,
};
pub use trim::{check_consistency, keep_free, purge_all, unreserve};

/// No block is larger: pointer differences inside it must fit `isize`.
pub const MAX_BYTES: usize = isize::MAX as usize;
