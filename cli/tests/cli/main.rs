//! The command from the user's point of view.

mod attach;
mod doctor;
mod engine;
mod env;
mod fake;
mod fleet;
mod grammar;
mod guard;
mod hostile;
mod identity;
mod live;
#[path = "../../../ci/older_kernel.rs"]
mod older_kernel;
mod profile;
mod prometheus;
mod push;
mod record;
mod refused;
mod report;
mod run;
mod scripts;
mod serve;
mod sessions;
mod signals;
#[path = "../../../ci/skips.rs"]
mod skips;
mod stage;
mod statistics;
mod terminal;
mod top;
mod transcripts;
mod tune;
