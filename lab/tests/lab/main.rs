//! The command as its users run it.

mod cases;
mod classes;
mod command;
mod compare;
mod download;
mod guard;
#[path = "../../../ci/nameable.rs"]
mod nameable;
mod returns;
mod security;
mod shown;
#[path = "../../../ci/skips.rs"]
mod skips;
mod soak;
mod stage;
mod tide;
mod zeros;
