//! The command as its users run it, but for `neap-lab download`, whose tests bring their own harness.

mod classes;
mod command;
mod prices;
mod returns;
mod stage;
mod tide;
mod zeros;
