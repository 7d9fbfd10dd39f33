//! A process at one moment, as tables for people.

use super::{State, View, slices, total, used};
use crate::classes::waste;
use anstyle::{AnsiColor, Style};
use neap_shared::stats::{Bytes, LedgerText, Row, Snapshot, SpanFigures, USE_NAMES, ending};
use std::fmt::{Display, Write};

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
    let mut out = format!("\n{}", LedgerText(ledger));
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
    let written = [figures.zeroed, figures.zero_spared, figures.zero_purged];
    let [zeroed, spared, returned] = written.map(Bytes);
    let [purged, regretted] = [figures.purged_bytes, figures.regretted_bytes].map(Bytes);
    let [reserved, committed] = [figures.reserved, figures.committed].map(Bytes);
    let (minor, major, purges) = (figures.minor_faults, figures.major_faults, figures.purges);
    let (used, idle, free) = (stacks.used, stacks.idle, stacks.free);
    let mut out = String::from("\n");
    let mut line = |name: &str, text: String| out += &format!("    {name:<NAME$} {text}\n");
    let back = "given back to the kernel instead";
    line(
        "zeroing",
        format!("{zeroed} written, {spared} saved, {returned} {back}"),
    );
    line("faults", format!("{minor} minor, {major} major"));
    let again = "wanted again within the decay time";
    line(
        "purges",
        format!("{purges}, {purged} in all, {regretted} of it {again}"),
    );
    if figures.refused > 0 {
        let requests = figures.refused;
        let plural = ending(requests, "s");
        let text = format!("{requests} request{plural} for memory, by a limit or by the kernel");
        line("refused", text);
    }
    if view.guarded().was_ever_on() {
        line("guards", guards(view));
    }
    line("threads", magazines(figures));
    line("stacks", format!("{used} used, {idle} idle, {free} free"));
    line(
        "address space",
        format!("{reserved} reserved, {committed} committed"),
    );
    line("figures", cost(figures, view));
    out
}

fn guards(view: &View) -> String {
    let guarded = view.guarded();
    format!("{}; so far {}", guarded.in_force(), guarded.counts())
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
    let mut out = heading("spans", &["number", "bytes"]);
    for (name, figure) in USE_NAMES.iter().zip(spans) {
        out += &row(name, &[&figure.spans, &Bytes(slices(figure.slices))]);
    }
    out
}

fn classes(figures: &Snapshot) -> String {
    let mut out = heading("class", &["slabs", "live", "free", "cached", "bytes live"]);
    for class in used(figures).filter(|class| class.blocks > 0) {
        let live = class.live();
        let bytes = Bytes(live.saturating_mul(class.bytes));
        let counts: [&dyn Display; 5] = [&class.slabs, &live, &class.free, &class.cached, &bytes];
        out += &row(&class.bytes, &counts);
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
    let columns = ["allocated", "asked for", "usable", "waste", "of all waste"];
    let mut out = heading("class", &columns);
    for line in &rows {
        let [asked, usable, lost] = [line.requested, line.usable, line.waste].map(Bytes);
        let share = format!("{:>10.1} %", line.share * 100.0);
        let cells: [&dyn Display; 5] = [&line.allocations, &asked, &usable, &lost, &share];
        out += &row(&line.class, &cells);
    }
    out
}

fn heading(name: &str, columns: &[&str]) -> String {
    let bold = Style::new().bold();
    let columns: String = (columns.iter().map(|name| format!(" {name:>FIGURE$}"))).collect();
    format!("\n    {bold}{name:<NAME$}{columns}{bold:#}\n")
}

fn row(name: &dyn Display, cells: &[&dyn Display]) -> String {
    let cells: String = (cells.iter().map(|cell| format!(" {cell:>FIGURE$}"))).collect();
    format!("    {name:<NAME$}{cells}\n")
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
    if view.guarded().was_ever_on() {
        out += &format!("    {:<NAME$} {}\n", "guards", guards(view));
    }
    let Some(coarse) = &view.coarse else {
        return out;
    };
    out.push('\n');
    #[rustfmt::skip]
    let lines = [
        ("large", coarse.large_bytes, "usable bytes of large blocks"),
        ("free spans", coarse.free, "not in use"),
        ("free_dirty", coarse.free_dirty, "of these, pages that may be resident"),
        ("tables", coarse.tables, "of the page heap"),
        ("committed", coarse.committed, "readable and writable address space"),
        ("reserved", coarse.reserved, "address space"),
        ("purged", coarse.purged_bytes, "given back to the kernel so far"),
    ];
    for (name, bytes, meaning) in lines {
        line(&mut out, name, bytes, meaning);
    }
    out + &spans(&coarse.spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::view_at_rest;
    use neap_shared::status_page::Coarse;

    #[test]
    fn the_ledger_has_no_lines_of_no_bytes() {
        let mut figures = Snapshot::default();
        figures.ledger.requested = 1 << 20;
        figures.ledger.resident = 1 << 20;
        let view = View {
            figures: Some(figures),
            ..view_at_rest()
        };
        let text = page(&view, "");
        let lines = |sign: &str| text.lines().filter(|line| line.starts_with(sign)).count();
        assert_eq!((lines("  + "), lines("  - ")), (1, 0), "{text}");
    }

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
            state: State::Pending,
            figures: None,
            coarse: Some(coarse),
            ..view_at_rest()
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
