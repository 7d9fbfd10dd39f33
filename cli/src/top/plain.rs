//! Lines, for a pipe or a file.

use super::feed::{Entry, Feed, HEADS, Look, Order, entries, none};
use super::pace::{FIRST, Pace, Stop, wait};
use crate::failure::Failure;
use crate::grammar::TextOrJson;
use crate::output::{self, Written};
use crate::view::{State, json};
use neap_shared::stats::Bytes;
use serde_json::{Value, json as value};
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

fn columns(look: &Look, number: u64) -> String {
    const NAMES: [&str; 11] = [
        "resident",
        "arenas",
        "live",
        "free",
        "magazines",
        "faults/s",
        "purged/s",
        "zeroed/s",
        "refills/s",
        "flushes/s",
        "threads",
    ];
    let mut out = String::new();
    if number.is_multiple_of(PAGE) {
        let names: Vec<String> = NAMES.iter().map(|name| format!("{name:>10}")).collect();
        out = names.join(" ") + "\n";
    }
    let rates = &look.rates;
    let mut cells = vec![Bytes(look.view.kernel.process_rss).to_string()];
    match &look.view.figures {
        Some(figures) => {
            cells.extend(
                [
                    figures.ledger.resident,
                    figures.live,
                    figures.free_dirty,
                    figures.magazines,
                ]
                .map(|bytes| Bytes(bytes).to_string()),
            );
            cells.extend([
                count(rates.minor_faults + rates.major_faults),
                Bytes(rates.purged_bytes as u64).to_string(),
                Bytes(rates.zeroed as u64).to_string(),
                count(rates.refills),
                count(rates.flushes),
                figures.threads.to_string(),
            ]);
        }
        None => cells.resize(NAMES.len(), "?".into()),
    }
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>10}")).collect();
    let pending = match look.view.state {
        State::Fresh => "",
        State::Pending => "  pending",
    };
    out + &cells.join(" ") + pending + "\n"
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
    let heads = HEADS.map(str::to_owned);
    let cells = entries.iter().map(Entry::cells);
    for [pid, resident, committed, free, purged, program] in iter::once(heads).chain(cells) {
        let figures = format!("{resident:>11} {committed:>11} {free:>11} {purged:>11}");
        out += &format!("{pid:>8} {figures}{program}\n");
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
