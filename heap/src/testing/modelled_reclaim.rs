//! What the models have of `reclaim`.

#[path = "../reclaim/wakeup.rs"]
pub mod wakeup;
