//! Lines, for a pipe or a file.

use super::canvas::aligned;
use super::feed::{COLUMNS, Entry, Feed, Look, Order, Rates, WIDTHS, entries, none};
use super::pace::{FIRST, Pace, Stop, wait};
use crate::failure::Failure;
use crate::grammar::TextOrJson;
use crate::output::{self, Written};
use crate::view::{State, json};
use neap_shared::stats::{Bytes, Snapshot};
use serde_json::{Value, json as value};
use std::fmt::Alignment;
use std::iter;
use std::time::Instant;

/// Lines between two headings.
const PAGE: u64 = 20;

/// Watches one process until it ends, a signal comes, or the given number of ticks is over.
pub fn one(mut feed: Feed, pace: Pace, form: TextOrJson) -> Result<Stop, Failure> {
    each(pace, |number| {
        let Some(look) = feed.look()? else {
            return Ok(Some(Stop::Ended(feed.title().to_owned())));
        };
        write(&match form {
            TextOrJson::Text => columns(&look, number),
            TextOrJson::Json => format!("{}\n", object(&look)),
        })
    })
}

/// Lists the processes until a signal comes or the given number of ticks is over.
pub fn list(pace: Pace, form: TextOrJson) -> Result<Stop, Failure> {
    each(pace, |number| {
        let entries = entries(Order::default())?;
        write(&match form {
            TextOrJson::Text => table(&entries, number),
            TextOrJson::Json => format!("{}\n", value!(entries)),
        })
    })
}

/// Calls `look` at every tick with the tick's number; `look` may end the loop.
fn each(
    pace: Pace,
    mut look: impl FnMut(u64) -> Result<Option<Stop>, Failure>,
) -> Result<Stop, Failure> {
    let count = pace.count.unwrap_or(u64::MAX);
    for number in 0..count {
        // The first tick follows the request after a short pause, so that there is an answer.
        let pause = match number {
            0 => pace.interval.min(FIRST),
            _ => pace.interval,
        };
        let until = Instant::now() + pause;
        if let Some(stop) = wait(until) {
            return Ok(stop);
        }
        if let Some(stop) = look(number)? {
            return Ok(stop);
        }
    }
    Ok(Stop::Asked)
}

/// Writes a text. A reader that closes its end stops the watch.
fn write(text: &str) -> Result<Option<Stop>, Failure> {
    Ok(match output::write(text)? {
        Written::Whole => None,
        Written::Unread => Some(Stop::Asked),
    })
}

/// A column's name, and its text for a process with figures.
type Figure = (&'static str, fn(&Snapshot, &Rates) -> String);

/// The columns after the resident memory.
#[rustfmt::skip]
const FIGURES: [Figure; 10] = [
    ("arenas", |figures, _| Bytes(figures.ledger.resident).to_string()),
    ("live", |figures, _| Bytes(figures.live).to_string()),
    ("free", |figures, _| Bytes(figures.free_dirty).to_string()),
    ("magazines", |figures, _| Bytes(figures.magazines).to_string()),
    ("faults/s", |_, rates| count(rates.minor_faults + rates.major_faults)),
    ("purged/s", |_, rates| Bytes(rates.purged_bytes as u64).to_string()),
    ("zeroed/s", |_, rates| Bytes(rates.zeroed as u64).to_string()),
    ("refills/s", |_, rates| count(rates.refills)),
    ("flushes/s", |_, rates| count(rates.flushes)),
    ("threads", |figures, _| figures.threads.to_string()),
];

fn columns(look: &Look, number: u64) -> String {
    let line = |resident: &str, cells: [String; FIGURES.len()]| {
        let columns = [(10, Alignment::Right); FIGURES.len()];
        format!("{resident:>10} {}", aligned(&columns, &cells))
    };
    let mut out = String::new();
    if number.is_multiple_of(PAGE) {
        out = line("resident", FIGURES.map(|(name, _)| name.to_owned())) + "\n";
    }
    let cells = FIGURES.map(|(_, cell)| match &look.view.figures {
        Some(figures) => cell(figures, &look.rates),
        None => "?".to_owned(),
    });
    let pending = match look.view.state {
        State::Fresh => "",
        State::Pending => "  pending",
    };
    let resident = Bytes(look.view.kernel.process_rss).to_string();
    out + &line(&resident, cells) + pending + "\n"
}

/// `0.5`, `12`, `1.2M`.
pub fn count(number: f64) -> String {
    match number {
        ..10.0 => format!("{}", (number * 10.0).round() / 10.0),
        ..100_000.0 => format!("{number:.0}"),
        ..100e6 => format!("{:.1}k", number / 1e3),
        _ => format!("{:.1}M", number / 1e6),
    }
}

fn object(look: &Look) -> Value {
    let mut object = json::object(&look.view);
    object["rates"] = value!(look.rates);
    object
}

fn table(entries: &[Entry], number: u64) -> String {
    let mut out = String::new();
    if number > 0 {
        out.push('\n');
    }
    let heads = COLUMNS.map(|(name, _)| name.to_owned());
    for cells in iter::once(heads).chain(entries.iter().map(Entry::cells)) {
        out += &(aligned(&WIDTHS, &cells) + "\n");
    }
    if entries.is_empty() {
        out += &(none() + "\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.54, 12.3, 99_999.0, 123_456.0, 1.5e8, f64::MAX];
        let texts = numbers.map(|number| count(number).chars().take(8).collect::<String>());
        assert_eq!(texts[..6], ["0", "0.5", "12", "99999", "123.5k", "150.0M"]);
    }
}
