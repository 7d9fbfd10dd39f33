//! Records the sizes that real programs request.

use anyhow::Context as _;

use super::recorded::{self, Sizes, Step, figures};
use super::sizes::{PROGRAMS, Program};
use super::tables::LARGEST;
use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::record::Record;
use crate::engine::settings::{JSON, NEAP, RECORDS, Setting, Settings};
use crate::engine::table::section;
use crate::peers::{self, Places};

/// The sizes that real programs request.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sizes",
    about: "Record the sizes that real programs request, in Neap's counting mode",
    settings: &[
        NEAP,
        Setting::names("only", "Only these programs"),
        JSON,
        RECORDS,
    ],
    run: carry_out,
    tables: |record, _| table(record),
    ..PLAIN
};

impl Named for Program {
    fn name(&self) -> String {
        self.name.to_string()
    }
}

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let neap = peers::find("neap").context("no peer is called neap")?;
    let neap = peers::locate(neap, &Places::new(settings.path("neap"))?)?;
    let all: Vec<&Program> = PROGRAMS.iter().collect();
    let programs = settings.chosen(("only", "program"), &all, |program| program.name)?;
    let peers = [neap];
    campaign.head(&[], &peers);
    campaign.rounds(1, (&programs, &peers), |program, neap| {
        Ok(figures(&program.sizes(&neap.library)?))
    });
    Ok(Ended::Measured)
}

const COLUMNS: [&str; 4] = ["allocations", "up to 32 KiB", "mean of these", "most often"];

fn table(record: &Record) -> String {
    let Ok(programs) = recorded::programs(record) else {
        return String::new();
    };
    let names: Vec<&str> = programs
        .iter()
        .map(|sizes| sizes.program.as_str())
        .collect();
    section(
        "The sizes that programs request",
        "program",
        (&names, &COLUMNS),
        |name, column| {
            let Sizes { steps, .. } = programs.iter().find(|sizes| sizes.program == **name)?;
            let small = || steps.iter().filter(|step| step.up_to <= LARGEST);
            let count: u64 = small().map(|step| step.count).sum();
            let bytes: u64 = small().map(|step| step.bytes).sum();
            let all: u64 = steps.iter().map(|step| step.count).sum();
            Some(match COLUMNS.iter().position(|known| known == column)? {
                0 => all.to_string(),
                1 => count.to_string(),
                2 => format!("{:.1} B", bytes as f64 / count.max(1) as f64),
                _ => most_often(steps.iter().max_by_key(|step| step.count)?),
            })
        },
    )
}

fn most_often(step: &Step) -> String {
    match step.up_to {
        usize::MAX => "larger".into(),
        bytes => format!("up to {bytes} B"),
    }
}
