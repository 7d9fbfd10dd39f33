//! The command as its users see it.

mod doctor;
mod env;
mod identity;
mod options_page;
mod refused;
mod report;
mod run;
mod scripts;
mod signals;
mod stage;
mod statistics;
mod transcripts;
