//! Known allocations, compared with their profiles.

use anyhow::Context as _;

use super::truth;
use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::settings::{JSON, NEAP, QUICK, RECORDS, ROUNDS, Setting, Settings};
use crate::peers::{self, Places};

/// The accuracy of the sampling profiler.
pub const EXPERIMENT: Experiment = Experiment {
    name: "profile",
    about: "Check the accuracy of the sampling profiler by known allocations",
    settings: &[
        NEAP,
        Setting::number("rate", "BYTES", (FINEST, u64::MAX))
            .default("524288")
            .about("Mean bytes between two samples"),
        ROUNDS.about("Processes whose means are compared (default: 200)"),
        QUICK,
        JSON,
        RECORDS,
    ],
    run: carry_out,
    ..PLAIN
};

const RUNS: u32 = 200;
/// Bytes that each place allocates.
const BYTES: usize = 16 << 20;
/// The lowest rate that the library accepts, in bytes.
const FINEST: u64 = 4096;
/// A quick run divides its amounts by this.
const QUICKER: u64 = 16;

/// A place whose mean is far off is a failure.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let neap = peers::find("neap").context("no peer neap")?;
    let neap = peers::locate(neap, &Places::new(settings.path("neap"))?)?;
    let (runs, rate) = (settings.rounds(RUNS), settings.number("rate"));
    let options = [("runs", runs.to_string()), ("rate", rate.to_string())];
    campaign.head(&options, std::slice::from_ref(&neap));
    let divisor = if settings.is_quick() { QUICKER } else { 1 };
    let plan = truth::Plan {
        neap,
        runs,
        bytes: BYTES / divisor as usize,
        // A quick run takes the same number of samples: with only one or two per place, errors are
        // not normally distributed.
        rate: (rate / divisor).max(FINEST),
    };
    truth::carry_out(&plan, campaign);
    Ok(Ended::Measured)
}
