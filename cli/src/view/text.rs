//! A process at one moment, as tables for people.

use super::{State, View, slices, used};
use crate::profile::percent;
use crate::table::folded;
use anstyle::{AnsiColor, Style};
use neap_shared::ledger::{Ledger, Line, OF_BLOCKS, held, signed};
use neap_shared::stats::{Bytes, Row, Snapshot, SpanFigures, USE_NAMES, ending};
use std::fmt::Display;

/// Width of a sentence.
const WIDTH: usize = 80;
/// Width of the column of names.
const NAME: usize = 14;
const FIGURE: usize = 11;

/// How much of a process the page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A verdict, and the ledger's large lines.
    Verdict,
    /// Every count.
    All,
}

/// The page of `neap stat`. `advice` is a line for a process that has not answered, or empty.
pub fn page(view: &View, advice: &str, detail: Detail) -> String {
    let bold = Style::new().bold();
    let mut out = format!("{bold}{}{bold:#}\n", view.title());
    match (view.state, &view.figures) {
        (State::Fresh, Some(figures)) => {
            let verdict = verdict(view, &figures.ledger);
            out += &(folded(&verdict, WIDTH).join("\n") + "\n\n");
            ledger(&mut out, &figures.ledger, detail);
            if detail == Detail::All || overcounted(view, &figures.ledger) > 0 {
                kernel(&mut out, view);
                let apart = difference(figures.ledger.resident, view.kernel.arenas_rss);
                out += &fact("difference", format!("{apart:>FIGURE$}  between the two"));
            }
            rest(&mut out, view);
            out += &memo(view, figures.refused);
            if detail == Detail::All {
                out += &spans(&figures.spans);
                out += &classes(figures);
            }
        }
        _ => out += &pending(view, advice),
    }
    out
}

/// Sentences: what the process has, what beside live blocks is in the heap, and the next command.
fn verdict(view: &View, ledger: &Ledger) -> String {
    let unused = ledger.resident - held(ledger);
    let lines = ledger.lines();
    let most = lines[OF_BLOCKS..].iter().max_by_key(|line| line.bytes);
    let most = most.expect("the ledger has such lines");
    let (process, over) = (Bytes(view.kernel.process_rss), overcounted(view, ledger));
    let (heap, live) = (Bytes(ledger.resident - over), Bytes(held(ledger)));
    let mut out = format!("It has {process} in RAM, {heap} of it in the heap. ");
    if over > 0 {
        out += &format!(
            "The process could not ask the kernel which pages are in RAM (it has changed its user, \
             or is in a sandbox), so the lines below count {} too much. ",
            Bytes(over)
        );
    } else {
        out += &format!("Live blocks take {live}. ");
    }
    if unused > 0 && over == 0 {
        out += &format!(
            "Of the other {} ({} of the heap), the largest part is {} ({}). ",
            Bytes(unused),
            percent(unused, ledger.resident),
            most.meaning,
            most.name
        );
    }
    if ledger.sum() != i128::from(ledger.resident) {
        out += "The lines below do not add up: the status page is damaged or forged. ";
    }
    out += &elsewhere(view);
    let [verb, option, what] = match most.name {
        _ if view.hint.is_some() => return out,
        _ if unused <= ledger.resident / 10 => ["profile", "", "which calls allocate the blocks"],
        "free_dirty" | "magazines" => ["purge", "", "how much of it goes back at once"],
        _ => ["stat", " --all", "its size classes and spans"],
    };
    out + &format!("neap {verb} {}{option} shows {what}.", view.pid)
}

/// On memory outside of the heap, if that is more than a quarter of the process.
fn elsewhere(view: &View) -> String {
    let (kernel, foreign) = (view.kernel, view.kernel.foreign_rss());
    if !kernel.is_elsewhere() {
        return String::new();
    }
    format!(
        "{} ({} of the process) is not in the heap: {} of code, files and shared memory, and {} of \
         stacks and mappings that the program made itself. {}. ",
        Bytes(foreign),
        percent(foreign, kernel.process_rss),
        Bytes(kernel.files_rss.min(foreign)),
        Bytes(foreign.saturating_sub(kernel.files_rss)),
        view.hint.unwrap_or("Neap cannot reduce that")
    )
}

/// By how many bytes the ledger exceeds the kernel's count, because the process could not ask which
/// pages are resident.
fn overcounted(view: &View, ledger: &Ledger) -> u64 {
    match (
        ledger.asked_kernel,
        view.kernel.of_arenas(view.kernel.arenas_rss),
    ) {
        (0, Some(counted)) => ledger.resident.saturating_sub(counted),
        _ => 0,
    }
}

fn line(out: &mut String, sign: char, name: &str, bytes: u64, meaning: &str) {
    let row = Row {
        sign,
        name,
        bytes,
        meaning,
    };
    *out += &row.to_string();
}

/// The lines of the ledger. In a verdict, one line stands for all of at most 1 %.
fn ledger(out: &mut String, ledger: &Ledger, detail: Detail) {
    let most_left_out = match detail {
        Detail::Verdict => ledger.resident / 100,
        Detail::All => 0,
    };
    let (shown, others): (Vec<Line>, Vec<Line>) =
        (ledger.lines().into_iter()).partition(|line| line.bytes > most_left_out);
    for row in shown {
        line(out, row.sign.mark(), row.name, row.bytes, row.meaning);
    }
    let others: i128 = others.iter().map(signed).sum();
    if others != 0 {
        let bytes = others.unsigned_abs() as u64;
        let sign = if others < 0 { '-' } else { '+' };
        let meaning = "of at most 1 % each; --all shows them";
        line(out, sign, "others", bytes, meaning);
    }
    let meaning = ledger.resident_meaning();
    line(out, '=', "resident", ledger.resident, meaning);
    out.push('\n');
}

fn kernel(out: &mut String, view: &View) {
    let meaning = "resident in the arenas, as the kernel counts (smaps)";
    line(out, ' ', "kernel", view.kernel.arenas_rss, meaning);
}

fn rest(out: &mut String, view: &View) {
    let kernel = view.kernel;
    let meaning = "resident in the process, outside of the arenas";
    line(out, ' ', "not ours", kernel.foreign_rss(), meaning);
    let meaning = "the whole process, resident";
    line(out, ' ', "process", kernel.process_rss, meaning);
    if kernel.process_swap > 0 {
        let ours = Bytes(kernel.arenas_swap);
        let meaning = format!("the whole process, swapped out; {ours} of this of the arenas");
        line(out, ' ', "swapped out", kernel.process_swap, &meaning);
    }
}

fn fact(name: &str, text: impl Display) -> String {
    format!("    {name:<NAME$} {text}\n")
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

/// Figures that are part of no sum, where there are any.
fn memo(view: &View, refused: u64) -> String {
    let mut out = String::new();
    if refused > 0 {
        let plural = ending(refused, "s");
        let text = format!("{refused} request{plural} for memory, by a limit or by the kernel");
        out += &fact("refused", text);
    }
    let guarded = view.guarded();
    if guarded.was_ever_on() {
        let text = format!("{}; so far {}", guarded.in_force(), guarded.counts());
        out += &fact("guards", text);
    }
    out
}

fn spans(spans: &[SpanFigures]) -> String {
    let of_use = |(name, figure): (&&str, &SpanFigures)| {
        let (number, bytes) = (figure.spans, Bytes(slices(figure.slices)));
        fact(name, format!("{bytes:>FIGURE$}  in {number} spans"))
    };
    let lines: String = USE_NAMES.iter().zip(spans).map(of_use).collect();
    format!("\n{lines}")
}

fn classes(figures: &Snapshot) -> String {
    let columns = ["slabs", "live", "free", "cached", "bytes live", "wasted"];
    let columns = columns.map(|name| format!(" {name:>FIGURE$}")).concat();
    let bold = Style::new().bold();
    let mut out = format!("\n    {bold}{:<NAME$}{columns}{bold:#}\n", "class");
    for class in used(figures).filter(|class| class.blocks > 0) {
        let live = class.live();
        let bytes = Bytes(live.saturating_mul(class.bytes));
        let usable = class.allocations.saturating_mul(class.bytes);
        let wasted = match class.requested {
            0 => "not counted".to_owned(),
            requested => Bytes(usable.saturating_sub(requested)).to_string(),
        };
        let cells: [&dyn Display; 6] = [
            &class.slabs,
            &live,
            &class.free,
            &class.cached,
            &bytes,
            &wasted,
        ];
        let cells = cells.map(|cell| format!(" {cell:>FIGURE$}")).concat();
        out += &format!("    {:<NAME$}{cells}\n", class.bytes);
    }
    out
}

fn pending(view: &View, advice: &str) -> String {
    let yellow = Style::new().fg_color(Some(AnsiColor::Yellow.into()));
    let why = view.silence.why;
    let mut out = format!(
        "{yellow}pending: {why}; showing what the page heap and the kernel \
         know{yellow:#}\n{advice}\n"
    );
    out += &(folded(&elsewhere(view), WIDTH).join("\n") + "\n");
    kernel(&mut out, view);
    rest(&mut out, view);
    out += &memo(view, 0);
    let Some(coarse) = &view.coarse else {
        return out;
    };
    let [large, free, dirty] = [coarse.large_bytes, coarse.free, coarse.free_dirty].map(Bytes);
    let text = format!("{large} in large blocks; {free} free, at most {dirty} of it resident");
    out += &fact("page heap", text);
    out + &spans(&coarse.spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::kernel::Extent;
    use crate::view::tests::view_at_rest;

    #[test]
    fn the_ledger_has_no_lines_of_no_bytes() {
        let mut figures = Snapshot::default();
        figures.ledger.requested = 1 << 20;
        figures.ledger.resident = 1 << 20;
        let view = View {
            figures: Some(figures),
            ..view_at_rest()
        };
        let text = page(&view, "", Detail::All);
        let lines = |sign: &str| text.lines().filter(|line| line.starts_with(sign)).count();
        assert_eq!((lines("  + "), lines("  - ")), (1, 0), "{text}");
    }

    #[test]
    fn what_the_process_could_not_ask_is_said() {
        let mut figures = Snapshot::default();
        figures.ledger.requested = 60 << 20;
        figures.ledger.resident = 60 << 20;
        let mut view = view_at_rest();
        view.figures = Some(figures);
        view.kernel.arenas_rss = 20 << 20;
        view.kernel.process_rss = 24 << 20;
        view.kernel.extent = Extent::Arenas;
        let text = page(&view, "", Detail::Verdict).replace('\n', " ");
        let words = "It has 24.0 MiB in RAM, 20.0 MiB of it in the heap. The process could not ask";
        assert!(text.contains(words), "{text}");
        assert!(text.contains("count 40.0 MiB too much"), "{text}");
        assert!(text.contains("20.0 MiB  resident in the arenas"), "{text}");
    }
}
