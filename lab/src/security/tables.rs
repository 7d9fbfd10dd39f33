//! The tables of a record: class by class, and each situation by itself.

use super::outcome::Outcome;
use super::situations::{self, Class};
use crate::engine::campaign::Named as _;
use crate::engine::experiment::View;
use crate::engine::record::Record;
use crate::engine::table::section;

/// The figure's name.
pub const OUTCOME: &str = "outcome";

const ALL: &str = "all";

/// How many situations of each class were withstood, then what became of each.
pub fn by_class(record: &Record, _: &View) -> String {
    let peers = peers(record);
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

/// The contenders, in the order of the rows.
fn peers(record: &Record) -> Vec<String> {
    record.rows.iter().fold(Vec::new(), |mut seen, row| {
        if !seen.contains(&row.peer) {
            seen.push(row.peer.clone());
        }
        seen
    })
}

/// What became of a situation under a contender.
fn outcome(record: &Record, case: &str, peer: &str) -> Option<Outcome> {
    let is_it = |row: &&crate::engine::record::Row| {
        row.case == case && row.peer == peer && row.figure.name == OUTCOME
    };
    Outcome::find(record.rows.iter().find(is_it)?.figure.as_text()?)
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
    use crate::engine::record::Figure;
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
