//! A process at one moment, as tables for people.

use super::{State, View, live, slices, total, used};
use crate::classes::waste;
use anstyle::{AnsiColor, Style};
use neap_shared::stats::{Bytes, LedgerText, Row, Snapshot, SpanFigures, USE_NAMES, Zeros, ending};
use std::fmt::Write;

/// Width of the column of names.
const NAME: usize = 14;
const FIGURE: usize = 11;

/// The page of `neap stat`. `advice` is a line for a process that has not answered, or empty.
pub fn page(view: &View, advice: &str) -> String {
    let bold = Style::new().bold();
    let mut out = format!("{bold}{}{bold:#}\n", view.title());
    match (view.state, &view.figures) {
        (State::Fresh, Some(figures)) => {
            out += &ledger(figures, view);
            out += &memo(figures, view);
            out += &spans(&figures.spans);
            out += &classes(figures);
            out += &waste(figures);
        }
        _ => out += &pending(view, advice),
    }
    out
}

fn line(out: &mut String, name: &str, bytes: u64, meaning: &str) {
    let row = Row {
        sign: ' ',
        name,
        bytes,
        meaning,
    };
    *out += &row.to_string();
}

fn ledger(figures: &Snapshot, view: &View) -> String {
    let ledger = &figures.ledger;
    let mut out = format!("\n{}", LedgerText(ledger, Zeros::Kept));
    if ledger.sum() != i128::from(ledger.resident) {
        out += "    (the lines do not add up to that: the status page is damaged or forged)\n";
    }
    out.push('\n');
    arenas(&mut out, view);
    let apart = difference(ledger.resident, view.kernel.arenas_rss);
    let meaning = "resident less what the kernel counts";
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "    {:<NAME$} {apart:>FIGURE$}  {meaning}",
        "difference"
    );
    rest(&mut out, view);
    out
}

fn arenas(out: &mut String, view: &View) {
    let meaning = "resident in the arenas, as the kernel counts (smaps)";
    line(out, "kernel", view.kernel.arenas_rss, meaning);
}

fn rest(out: &mut String, view: &View) {
    let kernel = view.kernel;
    let meaning =
        "resident in the process, but not in the arenas: code, stacks, files, other heaps";
    line(out, "not ours", kernel.foreign_rss(), meaning);
    let meaning = "the whole process, resident";
    line(out, "process", kernel.process_rss, meaning);
    if kernel.process_swap > 0 {
        let ours = Bytes(kernel.arenas_swap);
        let meaning = format!("the whole process, swapped out; {ours} of this of the arenas");
        line(out, "swapped out", kernel.process_swap, &meaning);
    }
    if let Some(hint) = view.hint {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "    hint: {hint}");
    }
}

/// The difference, with a sign.
pub fn difference(one: u64, other: u64) -> String {
    let sign = match one.cmp(&other) {
        std::cmp::Ordering::Less => "-",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => "+",
    };
    format!("{sign}{}", Bytes(one.abs_diff(other)))
}

/// Figures that are part of no sum.
fn memo(figures: &Snapshot, view: &View) -> String {
    let stacks = &figures.stacks;
    let lines = [
        (
            "zeroing",
            format!(
                "{} written, {} saved, {} given back to the kernel instead",
                Bytes(figures.zeroed),
                Bytes(figures.zero_spared),
                Bytes(figures.zero_purged)
            ),
        ),
        (
            "faults",
            format!(
                "{} minor, {} major",
                figures.minor_faults, figures.major_faults
            ),
        ),
        (
            "purges",
            format!(
                "{}, {} in all, of which {} were wanted again within the decay time",
                figures.purges,
                Bytes(figures.purged_bytes),
                Bytes(figures.regretted_bytes)
            ),
        ),
        ("threads", magazines(figures)),
        (
            "stacks",
            format!(
                "{} used, {} parked, {} free",
                stacks.used, stacks.parked, stacks.free
            ),
        ),
        (
            "address space",
            format!(
                "{} reserved, {} committed",
                Bytes(figures.reserved),
                Bytes(figures.committed)
            ),
        ),
        ("figures", cost(figures, view)),
    ];
    let mut out = String::from("\n");
    for (name, text) in lines {
        let _ = writeln!(out, "    {name:<NAME$} {text}");
    }
    out
}

fn magazines(figures: &Snapshot) -> String {
    let refills = total(figures, |class| class.refills);
    let flushes = total(figures, |class| class.flushes);
    format!(
        "{}; {refills} refill{} and {flushes} flush{} of magazines",
        figures.threads,
        ending(refills, "s"),
        ending(flushes, "es")
    )
}

fn cost(figures: &Snapshot, view: &View) -> String {
    let (one, all) = (micros(figures.cost_ns), micros(view.served.cost_ns));
    match view.served.written {
        0 | 1 => format!("cost the process {one} µs"),
        times => format!("cost the process {one} µs; all {times} so far together, {all} µs"),
    }
}

fn micros(ns: u64) -> u64 {
    ns / 1000
}

fn spans(spans: &[SpanFigures]) -> String {
    let mut out = heading("spans", "number       bytes");
    for (name, figure) in USE_NAMES.iter().zip(spans) {
        let bytes = Bytes(slices(figure.slices));
        let _ = writeln!(out, "    {name:<NAME$} {:>11} {bytes:>11}", figure.spans);
    }
    out
}

fn classes(figures: &Snapshot) -> String {
    let columns = format!(
        "{:>11} {:>11} {:>11} {:>11} {:>11}",
        "slabs", "live", "free", "cached", "bytes live"
    );
    let mut out = heading("class", columns.trim_start());
    for class in used(figures).filter(|class| class.blocks > 0) {
        let live = live(class);
        let bytes = Bytes(live.saturating_mul(class.bytes));
        let _ = writeln!(
            out,
            "    {:<NAME$} {:>11} {live:>11} {:>11} {:>11} {bytes:>11}",
            class.bytes, class.slabs, class.free, class.cached
        );
    }
    out
}

/// The waste of the classes so far, if allocations are counted; otherwise the requested bytes are
/// unknown.
fn waste(figures: &Snapshot) -> String {
    let rows = waste::of_snapshot(figures);
    if rows.is_empty() {
        return String::new();
    }
    let columns = format!(
        "{:>11} {:>11} {:>11} {:>11} {:>11}",
        "allocated", "asked for", "usable", "waste", "of all waste"
    );
    let mut out = heading("class", columns.trim_start());
    for row in &rows {
        let [asked, usable, lost] = [row.requested, row.usable, row.waste].map(Bytes);
        let _ = writeln!(
            out,
            "    {:<NAME$} {:>11} {asked:>11} {usable:>11} {lost:>11} {:>10.1} %",
            row.class,
            row.allocations,
            row.share * 100.0
        );
    }
    out
}

/// `columns` begins with the end of the first column's name.
fn heading(name: &str, columns: &str) -> String {
    let bold = Style::new().bold();
    let first = columns.split(' ').next().unwrap_or_default();
    let rest = &columns[first.len()..];
    format!("\n    {bold}{name:<NAME$} {first:>11}{rest}{bold:#}\n")
}

fn pending(view: &View, advice: &str) -> String {
    let yellow = Style::new().fg_color(Some(AnsiColor::Yellow.into()));
    let why = view.silence.why;
    let mut out = format!(
        "{yellow}pending: {why}; showing what the page heap and the kernel \
         know{yellow:#}\n{advice}\n"
    );
    arenas(&mut out, view);
    rest(&mut out, view);
    let Some(coarse) = &view.coarse else {
        return out;
    };
    out.push('\n');
    let lines = [
        ("large", coarse.large_bytes, "usable bytes of large blocks"),
        ("free spans", coarse.free, "not in use"),
        (
            "free_dirty",
            coarse.free_dirty,
            "of these, pages that may be resident",
        ),
        ("tables", coarse.tables, "of the page heap"),
        (
            "committed",
            coarse.committed,
            "readable and writable address space",
        ),
        ("reserved", coarse.reserved, "address space"),
        (
            "purged",
            coarse.purged_bytes,
            "given back to the kernel so far",
        ),
    ];
    for (name, bytes, meaning) in lines {
        line(&mut out, name, bytes, meaning);
    }
    out + &spans(&coarse.spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::kernel::KernelView;
    use neap_shared::board::{Coarse, Served};

    #[test]
    fn no_name_stands_for_two_figures() {
        let mut coarse = Coarse {
            large_bytes: 5 << 20,
            ..Coarse::default()
        };
        coarse.spans[1] = SpanFigures {
            spans: 3,
            slices: 100,
        };
        let view = View {
            pid: 7,
            program: "server".to_owned(),
            state: State::Pending,
            figures: None,
            coarse: Some(coarse),
            kernel: KernelView::default(),
            served: Served::default(),
            silence: crate::attach::Silence::default(),
            hint: None,
            taken_ms: 1,
        };
        let text = page(&view, "");
        let name = |line: &&str| line.get(4..18).map(|name| name.trim().to_owned());
        let mut names: Vec<_> = text.lines().filter_map(|line| name(&line)).collect();
        names.retain(|name| !name.is_empty());
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{text}");
    }
}
