//! Both parts of the experiment.

use anyhow::Context as _;

use super::{price, truth};
use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::settings::{JSON, NEAP, QUICK, RECORDS, ROUNDS, SEED, Setting, Settings};
use crate::peers::{self, Places};

/// The accuracy and the cost of the sampling profiler.
pub const EXPERIMENT: Experiment = Experiment {
    name: "profile",
    about: "Check the accuracy of the sampling profiler, and what it and `neap top` cost",
    settings: &[
        NEAP,
        Setting::names("only", "Only these parts: truth, price"),
        Setting::number("rate", "BYTES", (FINEST, u64::MAX))
            .default("524288")
            .about("Mean bytes between two samples"),
        Setting::path("command", "PATH").about(
            "The command neap, whose top is attached (default: in target/dist, or beside this program)",
        ),
        ROUNDS,
        QUICK,
        JSON,
        RECORDS,
        SEED,
    ],
    run: carry_out,
    ..PLAIN
};

/// A part of the experiment, and its name.
#[derive(Clone, Copy)]
enum Part {
    /// Compare known allocations with their profiles.
    Truth,
    /// Paired runs with sampling off and on, and with top attached.
    Price,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Truth => "truth",
            Part::Price => "price",
        }
    }
}

const RUNS: u32 = 200;
const PAIRS: u32 = 20;
/// Bytes that each place allocates.
const BYTES: usize = 16 << 20;
/// The lowest rate that the library accepts, in bytes.
const FINEST: u64 = 4096;
/// A quick run divides its amounts by this.
const QUICKER: u64 = 16;

/// Carries out the parts that are set. A place whose mean is far off, and a price over its limit,
/// are failures.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let neap = peers::find("neap").context("no peer neap")?;
    let neap = peers::locate(neap, &Places::new(settings.path("neap"))?)?;
    let parts = settings.chosen(("only", "part"), &[Part::Truth, Part::Price], Part::name)?;
    let rate = settings.number("rate");
    let options = [
        ("runs", settings.rounds(RUNS).to_string()),
        ("pairs", settings.rounds(PAIRS).to_string()),
        ("rate", rate.to_string()),
        ("seed", settings.number("seed").to_string()),
    ];
    campaign.head(&options, std::slice::from_ref(&neap));
    let divisor = if settings.is_quick() { QUICKER } else { 1 };
    for part in parts {
        match part {
            Part::Truth => {
                let plan = truth::Plan {
                    neap: neap.clone(),
                    runs: settings.rounds(RUNS),
                    bytes: BYTES / divisor as usize,
                    // A quick run takes the same number of samples: with only one or two per
                    // place, errors are not normally distributed.
                    rate: (rate / divisor).max(FINEST),
                };
                truth::carry_out(&plan, campaign);
            }
            Part::Price => {
                let plan = price::Plan {
                    neap: neap.clone(),
                    command: settings.path("command").or_else(price::command),
                    rounds: settings.rounds(PAIRS),
                    divisor,
                    rate,
                };
                price::carry_out(&plan, campaign);
            }
        }
    }
    Ok(Ended::Measured)
}
