//! What a comparison says: the verdict, the table and the page.

use std::cmp::Ordering;

use super::run::{FAULTS, FOREIGN, MEAN, MOST_FOREIGN};
use crate::cases::allocators::{GLIBC, NEAP};
use crate::cases::figures::{CPU, END, PEAK, TIME};
use crate::engine::record::{Figure, Record, Row};
use crate::engine::table::{Column, section};
use crate::stats::quantile;

/// Smaller differences are none; with fewer than [`ENOUGH`] rounds, those below the second.
const LEAST: [f64; 2] = [0.01, 0.1];
/// The fewest rounds that show a spread.
const ENOUGH: usize = 3;
/// Less processor time is not compared, in seconds: the kernel counts some of it in ticks.
const LEAST_CPU: f64 = 0.2;
/// From this part on, the verdict tells what is not malloc's.
const MUCH: f64 = 0.25;

/// The least, the median and the most of a figure's rounds, and how many there are.
type Rounds = ([f64; 3], usize);

fn rounds(record: &Record, allocator: &str, figure: &str) -> Option<Rounds> {
    let values = record.rounds(record.cases().first()?, allocator, figure);
    let values: Vec<f64> = values.into_iter().map(|(_, value)| value).collect();
    (!values.is_empty()).then(|| ([0.0, 0.5, 1.0].map(|q| quantile(&values, q)), values.len()))
}

/// Less, more, or no difference: the ranges overlap, or the medians are close.
fn order((own, count): Rounds, (base, others): Rounds) -> Ordering {
    let least = LEAST[usize::from(count.min(others) < ENOUGH)];
    let is_close = (own[1] - base[1]).abs() <= base[1] * least;
    if is_close || (own[0] <= base[2] && base[0] <= own[2]) {
        Ordering::Equal
    } else {
        own[1].total_cmp(&base[1])
    }
}

/// Neap's figure against the C library's, in words.
fn against(record: &Record, figure: &str) -> Option<(Ordering, String)> {
    let own = rounds(record, NEAP, figure)?;
    let base = rounds(record, GLIBC, figure)?;
    let [is, was] = [own, base].map(|(values, _)| shown(values[1], figure));
    let unit = if figure == CPU {
        "s of processor time"
    } else {
        "MB"
    };
    let [own_median, base_median] = [own, base].map(|(values, _)| values[1]);
    let order = if is == was {
        Ordering::Equal
    } else {
        order(own, base)
    };
    let words = match order {
        _ if figure == CPU && own_median.max(base_median) < LEAST_CPU => {
            format!("{is} {unit}, too little to compare")
        }
        Ordering::Equal if (own_median - base_median).abs() > base_median * LEAST[1] => {
            format!("{is} {unit}; glibc {was}, but the rounds overlap")
        }
        Ordering::Equal => format!("{is} {unit}, as under glibc"),
        _ => format!("{is} {unit} instead of {was}"),
    };
    Some((order, words))
}

/// The figure by which memory is judged, and when that is.
fn measure(record: &Record) -> (&'static str, &'static str) {
    let count = |it, figure| rounds(record, it, figure).map_or(0, |(_, count)| count);
    let is_told = |figure| {
        [NEAP, GLIBC]
            .iter()
            .all(|it| count(it, figure) == count(it, PEAK))
    };
    let all = [(END, "after the load"), (MEAN, "on average")];
    let told = all.into_iter().find(|(figure, _)| is_told(figure));
    told.unwrap_or((PEAK, "at its peak"))
}

/// Whether Neap is worth it, a sentence a line.
fn verdict(record: &Record) -> String {
    let (figure, when) = measure(record);
    let [memory, peak, time] = [figure, PEAK, CPU].map(|figure| against(record, figure));
    let (Some((order, memory)), Some((_, peak)), Some((_, time))) = (memory, peak, time) else {
        return "No verdict: the program did not run under both glibc and Neap, or ended at once.\n".into();
    };
    let gain = if order.is_lt() {
        ""
    } else {
        "No gain in memory: "
    };
    let mut text = format!("{gain}{when}, Neap keeps {memory}.\n");
    text[..1].make_ascii_uppercase();
    if figure != PEAK {
        text += &format!("Its peak is {peak}.\n");
    }
    text += &format!("It takes {time}.\n");
    if order.is_ge() {
        text += &foreign(record).unwrap_or_default();
    }
    text += &better(record, figure).unwrap_or_default();
    if rounds(record, NEAP, figure).is_some_and(|(_, count)| count < ENOUGH) {
        text += "Fewer than three rounds show no spread: only differences over 10 % count.\n";
    }
    text
}

/// What is not malloc's, if that is much.
fn foreign(record: &Record) -> Option<String> {
    let (part, _) = rounds(record, GLIBC, FOREIGN).filter(|(part, _)| part[1] >= MUCH)?;
    let most = record.text(record.cases().first()?, GLIBC, MOST_FOREIGN)?;
    let percent = part[1] * 100.0;
    Some(format!(
        "Under glibc, {percent:.0} % of the memory is not malloc's, most of that {most}.\n"
    ))
}

/// The allocator that keeps least, if that is less than Neap.
fn better(record: &Record, figure: &str) -> Option<String> {
    let own = rounds(record, NEAP, figure)?;
    let others = record.peers().into_iter();
    let others = others.filter_map(|peer| Some((peer, rounds(record, peer, figure)?)));
    let less = others.filter(|(_, other)| order(*other, own).is_lt());
    let (peer, (least, _)) = less.min_by(|(_, a), (_, b)| a.0[1].total_cmp(&b.0[1]))?;
    // The first sentence has told that of glibc.
    (peer != GLIBC).then(|| format!("{peer} keeps least: {} MB.\n", shown(least[1], figure)))
}

/// The verdict, for programs.
pub fn derived(record: &Record) -> Vec<Row> {
    let mut derived = Record::default();
    let verdict = vec![Figure::text("verdict", verdict(record).trim())];
    derived.push(record.cases().first().unwrap_or(&""), NEAP, 0, verdict);
    derived.rows
}

const COLUMNS: [Column<&str, &str>; 6] = [
    Column("after MB", END),
    Column("mean MB", MEAN),
    Column("peak MB", PEAK),
    Column("processor s", CPU),
    Column("wall s", TIME),
    Column("faults", FAULTS),
];

/// The verdict and the table.
pub fn text(record: &Record) -> String {
    let peers = record.peers();
    let is_told = |column: &Column<&str, &str>| {
        peers
            .iter()
            .any(|peer| rounds(record, peer, column.1).is_some())
    };
    let columns: Vec<_> = COLUMNS.into_iter().filter(is_told).collect();
    let table = section("", "", (&peers, &columns), |peer, Column(_, figure)| {
        let ([least, median, most], _) = rounds(record, peer, figure)?;
        let median_shown = shown(median, figure);
        let is_steady = most - least <= median * LEAST[0];
        let half = shown((most - least) / 2.0, figure);
        Some(if is_steady {
            median_shown
        } else {
            format!("{median_shown} ±{half}")
        })
    });
    format!(
        "{}\n{}\n±: half the range of the rounds",
        verdict(record),
        table.trim()
    )
}

fn shown(value: f64, figure: &str) -> String {
    match figure {
        FAULTS => format!("{value:.0}"),
        TIME | CPU => format!("{value:.2}"),
        _ if value < 100e6 => format!("{:.1}", value / 1e6),
        _ => format!("{:.0}", value / 1e6),
    }
}

/// A page with the verdict, the picture and the table.
pub fn html(record: &Record, picture: &str) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let program = escaped(record.said("program").unwrap_or_default());
    let text = escaped(&text(record));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{program}</title>\n\
         <style>body{{font:15px sans-serif;max-width:64em;margin:2em auto}}pre{{overflow:auto}}\
         </style>\n<h1>{program}</h1>\n<pre>{text}</pre>\n{picture}</html>\n"
    )
}
