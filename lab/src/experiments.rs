//! The experiments, in the order of the help.

use crate::engine::experiment::Experiment;
use crate::{
    bench, calloc, cases, classes, download, fragmentation, guard, profile, retention, security,
    soak, tide,
};

/// All of them.
pub const ALL: [&Experiment; 13] = [
    &bench::EXPERIMENT,
    &calloc::campaign::EXPERIMENT,
    &download::campaign::EXPERIMENT,
    &tide::campaign::EXPERIMENT,
    &retention::EXPERIMENT,
    &fragmentation::EXPERIMENT,
    &classes::campaign::EXPERIMENT,
    &classes::recording::EXPERIMENT,
    &profile::campaign::EXPERIMENT,
    &cases::campaign::EXPERIMENT,
    &security::campaign::EXPERIMENT,
    &guard::campaign::EXPERIMENT,
    &soak::campaign::EXPERIMENT,
];

/// The experiment with that name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}
