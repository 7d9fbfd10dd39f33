//! Memory errors: which of 116 wrong steps does an allocator stop before they do harm? Every
//! situation runs under every allocator, and under Neap in each of its modes.
//!
//! The situations are those that mimalloc-bench's 116 security programs cover, class by class. The
//! programs are this project's own (`lab/security`): no package registry has the originals.
//!
//! | file | contents |
//! |---|---|
//! | `situations` | the 116 situations as data |
//! | `programs` | the two programs, one run of a situation, and what became of it |

mod programs;
mod situations;

use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, PLAIN, View, available};
use crate::engine::record::{Figure, Record, distinct};
use crate::engine::settings::{self, Settings};
use crate::engine::table::section;
use crate::peers;
use crate::peers::locate::{Places, Ready};
use programs::{Outcome, Programs, judge};
use situations::{Class, Situation};

/// Wrong steps, and what becomes of them.
pub const EXPERIMENT: Experiment = Experiment {
    name: "security",
    about: "Which of 116 memory errors each allocator stops before they do harm",
    settings: || {
        vec![
            settings::neap(),
            settings::peers(),
            settings::names(
                "only",
                "Only these classes of errors, such as \"double free\"",
            ),
            settings::quick(),
            settings::seed(),
        ]
    },
    run: carry_out,
    tables: by_class,
    notes: || NOTES.to_string(),
    ..PLAIN
};

const NOTES: &str = "The situations are those of mimalloc-bench's security programs, class by \
    class; the programs are this project's own. --quick runs the small sizes only. hardened_malloc \
    takes part once `neap-lab peers --peers hardened,hardened-light` has built it.";

/// The size that a quick run leaves it at, of those situations that come in several.
const QUICK_SIZES: [&str; 2] = ["8", "0"];

/// Runs every situation once under every allocator.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let classes = settings.chosen(("only", "class"), Class::ALL.to_vec(), |class| class.name())?;
    let is_chosen = |one: &Situation| {
        classes.contains(&one.class) && (!settings.is_quick() || QUICK_SIZES.contains(&one.size))
    };
    let mut chosen = situations::all();
    chosen.retain(is_chosen);

    let places = Places::new(settings.path("neap"))?;
    let asked = peers::select_with_hardened(&settings.names("peers"))?;
    let ready = available(&asked, |peer| peers::locate::locate(peer, &places))?;
    let options = [("situations", chosen.len().to_string())];
    campaign.head(&options, &ready);

    let programs = Programs::compile()?;
    chosen.retain(|one| match programs.lacks(one) {
        Some(reason) => {
            campaign.leave_out(format!("{}: {reason}", one.kind));
            false
        }
        None => true,
    });
    let contenders: Vec<Ready> = ready.into_iter().flat_map(in_modes).collect();
    campaign.rounds(1, (&chosen, &contenders), |situation, contender| {
        let output = programs.run(situation, contender)?;
        let (outcome, shown) = judge(&output, &contender.library)?;
        Ok(vec![
            Figure::text(OUTCOME, outcome.name()),
            Figure::text("shown", shown),
        ])
    });
    Ok(Ended::Measured)
}

/// The modes of Neap: the name of the contender, and the variable that chooses it.
const MODES: [(&str, Option<&str>); 3] = [
    ("neap", None),
    ("neap check", Some("NEAP_CHECK")),
    ("neap hardened", Some("NEAP_HARDEN")),
];

/// A peer; Neap in each of its modes.
fn in_modes(ready: Ready) -> Vec<Ready> {
    if ready.name != "neap" {
        return vec![ready];
    }
    let in_mode = |(name, variable): (&'static str, Option<&'static str>)| {
        let set = |variable| ready.with_setting(variable, "1".to_string());
        let mode = variable.map_or_else(|| ready.clone(), set);
        Ready { name, ..mode }
    };
    MODES.map(in_mode).into()
}

/// The figure's name.
pub const OUTCOME: &str = "outcome";

const ALL: &str = "all";

/// How many situations of each class were withstood, then what became of each.
pub fn by_class(record: &Record, _: &View) -> String {
    // In the order of the rows, which has Neap's modes beside each other.
    let peers = distinct(record.rows.iter().map(|row| row.peer.as_str()));
    let mut rows: Vec<String> = vec![ALL.to_string()];
    rows.extend(Class::ALL.map(|class| class.name().to_string()));
    let classes = section(
        "Stopped or prevented, and + those that went through without harm",
        "class",
        (&rows, &peers),
        |class, peer| count(record, class, peer),
    );
    let names: Vec<String> = situations::all().iter().map(|one| one.name()).collect();
    let each = section(
        "Each situation",
        "situation",
        (&names, &peers),
        |name, peer| outcome(record, name, peer).map(|outcome| outcome.name().to_string()),
    );
    format!("{classes}{each}")
}

/// What became of a situation under a contender.
fn outcome(record: &Record, case: &str, peer: &str) -> Option<Outcome> {
    Outcome::find(record.text(case, peer, OUTCOME)?)
}

/// `12 of 15`, or `12 + 1 of 15` if one more did no harm.
fn count(record: &Record, class: &str, peer: &str) -> Option<String> {
    let is_of = |one: &&situations::Situation| class == ALL || one.class.name() == class;
    let all = situations::all();
    let outcomes = all.iter().filter(is_of);
    let outcomes: Vec<Outcome> = outcomes
        .filter_map(|one| outcome(record, &one.name(), peer))
        .collect();
    if outcomes.is_empty() {
        return None;
    }
    let withstood = outcomes.iter().filter(|outcome| outcome.is_withstood());
    let unnoticed = outcomes.iter().filter(|&&one| one == Outcome::Unnoticed);
    let (withstood, unnoticed) = (withstood.count(), unnoticed.count());
    Some(match unnoticed {
        0 => format!("{withstood} of {}", outcomes.len()),
        _ => format!("{withstood} + {unnoticed} of {}", outcomes.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::tests::record;

    #[test]
    fn a_class_counts_what_was_withstood_and_what_did_no_harm() {
        let outcomes = ["stopped", "prevented", "unnoticed", "harm"];
        let all = situations::all();
        let names: Vec<String> = all.iter().take(4).map(|one| one.name()).collect();
        let run = |(name, outcome)| {
            let name: &String = name;
            (
                name.as_str(),
                "neap",
                0,
                vec![Figure::text(OUTCOME, outcome)],
            )
        };
        let record = record(names.iter().zip(outcomes).map(run));
        let view = View {
            base: String::new(),
        };
        let text = by_class(&record, &view);
        let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap();
        assert!(line("│ all").contains("2 + 1 of 4"), "{text}");
        assert!(line("│ double free  ").contains("2 + 1 of 4"), "{text}");
        assert!(line(&names[3]).contains("harm"), "{text}");
        assert!(!text.contains("underflow"), "{text}");
    }
}
