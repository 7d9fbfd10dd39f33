//! Draws the screen.

use super::canvas::{
    Align, Area, BOLD, CYAN, Canvas, Column, DIM, GREEN, PLAIN, REVERSED, Row, YELLOW,
};
use super::feed::{COLUMNS, Entry, Look, Rates, Titled, none};
use super::plain::count;
use super::state::{List, One, Page, State, bytes};
use crate::choice::Choice;
use crate::table::folded;
use crate::view::guarded::SHORT_HINT;
use crate::view::text::difference;
use crate::view::{self, slices, total};
use neap_shared::ledger::{Ledger, Sign};
use neap_shared::stats::{Bytes, ClassFigures, Snapshot, USE_NAMES, ending};

/// Lines of the sparkline, including its title.
const SPARKLINE: u16 = 4;
/// Lines of the rates, and of the spans by use, including titles.
const RATES: u16 = 10;
const USES: u16 = USE_NAMES.len() as u16 + 1;
/// Columns of a ledger line: sign, name, figure.
const LEDGER: [u16; 3] = [1, 13, 10];
/// Width of the ledger with the meaning of each line.
const LEDGER_WITH_MEANINGS: u16 = 80;
/// Columns of a name and a figure beside the ledger.
const FACTS: [u16; 2] = [13, 11];
/// Columns between two tables.
const GAP: u16 = 2;

/// Wide enough for any text at the end of a line, which the screen cuts.
const REST: Column = (u16::MAX, Align::Left);
/// A name and a figure.
const FACT: [Column; 2] = [(FACTS[0], Align::Left), (FACTS[1], Align::Right)];

/// Draws the whole screen.
pub fn screen(canvas: &mut Canvas, state: &State) {
    let area = canvas.area();
    let (body, keys) = area.above(area.lines.saturating_sub(1));
    match &state.page {
        Page::List(list) => processes(canvas, body, list),
        Page::One(one) => process(canvas, body, one),
        Page::Help(_) => help(canvas, body),
    }
    match state.message.as_str() {
        "" => canvas.line(keys, state.page.keys(), DIM),
        message => canvas.line(keys, message, YELLOW),
    };
}

/// A table of which every column is aligned right, with a heading.
fn figures<const N: usize>(
    canvas: &mut Canvas,
    area: Area,
    columns: &[Column],
    names: [&str; N],
    rows: impl Iterator<Item = Row>,
) {
    let heading = Row::new(names).styled(DIM);
    canvas.table(area, columns, std::iter::once(heading).chain(rows));
}

fn processes(canvas: &mut Canvas, area: Area, list: &List) {
    let row = |(index, entry): (usize, &Entry)| {
        let style = if index == list.chosen {
            REVERSED
        } else {
            PLAIN
        };
        Row::new(entry.cells()).styled(style)
    };
    let text = match list.entries.len() {
        0 => none(),
        1 => "1 process under Neap".to_owned(),
        number => format!("{number} processes under Neap, by {}", list.order.word()),
    };
    let area = canvas.line(area, &text, BOLD);
    // The chosen process stays on the screen, below the heading.
    let lines = usize::from(area.lines.saturating_sub(1));
    let skipped = (list.chosen + 1).saturating_sub(lines);
    let rows = list.entries.iter().enumerate().skip(skipped).map(row);
    let columns = [8, 11, 11, 11, 11].map(|width| (width, Align::Right));
    let columns: Vec<Column> = columns.into_iter().chain([REST]).collect();
    figures(canvas, area, &columns, COLUMNS.map(|(name, _)| name), rows);
}

fn process(canvas: &mut Canvas, area: Area, one: &One) {
    let Some(look) = &one.look else {
        canvas.line(area, &format!("{} ...", one.title()), PLAIN);
        return;
    };
    let Some(figures) = &look.view.figures else {
        let pending = format!("pending: {}", look.view.silence.why);
        let resident = format!("resident {}", Bytes(look.view.kernel.process_rss));
        let mut area = canvas.line(area, one.title(), PLAIN);
        for text in [pending, resident] {
            for line in folded(&text, usize::from(area.columns)) {
                area = canvas.line(area, &line, PLAIN);
            }
        }
        return;
    };
    let lines = figures.ledger.lines();
    let lines = lines.iter().filter(|line| line.bytes > 0).count();
    let [top, left, middle, right, bottom] = places(area, lines);
    resident(canvas, top, one, look);
    ledger(canvas, left, &figures.ledger, look);
    rates(canvas, middle, &look.rates);
    spans(canvas, right, look, figures);
    classes(canvas, bottom, one, figures);
}

/// The areas of a process's page, for a ledger of `lines` lines: resident memory, ledger, rates,
/// spans, size classes. A terminal of 80 columns has no room for the meanings of the ledger's
/// lines.
fn places(area: Area, lines: usize) -> [Area; 5] {
    // A title, the sum, and the memory outside the arenas.
    let lines = u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(3);
    let facts = FACTS.iter().sum::<u16>() + 1;
    let (resident, below) = area.above(SPARKLINE);
    if area.columns >= LEDGER_WITH_MEANINGS + GAP + facts {
        let (middle, classes) = below.above(lines.max(RATES + USES));
        let (ledger, right) = middle.left(LEDGER_WITH_MEANINGS, GAP);
        let (rates, spans) = right.above(RATES);
        [resident, ledger, rates, spans, classes]
    } else {
        let (middle, classes) = below.above(lines.max(RATES));
        let (ledger, right) = middle.left(LEDGER.iter().sum::<u16>() + 2, GAP);
        let (rates, spans) = right.left(facts, GAP);
        [resident, ledger, rates, spans, classes]
    }
}

/// Explains the keys and the words.
fn help(canvas: &mut Canvas, area: Area) {
    let keys = [
        ("q, Ctrl-C", "quit (Ctrl-Z stops until the shell's fg)"),
        ("arrows", "choose a process, scroll size classes"),
        ("Enter", "look into the chosen process"),
        ("Esc", "back to the list"),
        ("p", "have the process give its free memory back"),
        ("s", "sort by the next column"),
        ("?", "this page"),
    ];
    let ledger = Ledger::default().lines();
    let words = ledger.iter().map(|line| (line.name, line.meaning));
    let rows = keys.into_iter().chain(words);
    let rows = rows.map(|(word, meaning)| Row::new([word, meaning]));
    let area = canvas.line(area, "keys, and the lines of the ledger", BOLD);
    canvas.table(area, &[(LEDGER[1], Align::Left), REST], rows);
}

fn resident(canvas: &mut Canvas, area: Area, one: &One, look: &Look) {
    let state = match (look.view.state, look.view.age_ms()) {
        (view::State::Pending, Some(age)) => format!(", pending: figures of {} s ago", age / 1000),
        _ => String::new(),
    };
    let errors = match look.view.served.memory_errors {
        0 => String::new(),
        errors => format!(", {errors} memory error{}", ending(errors, "s")),
    };
    let now = look.view.kernel.process_rss;
    let text = format!("{}: resident {}{errors}{state}", one.title(), Bytes(now));
    let area = canvas.line(area, &text, BOLD);
    let values: Vec<u64> = one.residents.iter().copied().collect();
    canvas.sparkline(area, &values, CYAN);
}

fn ledger(canvas: &mut Canvas, area: Area, ledger: &Ledger, look: &Look) {
    let [sign, name, figure] = LEDGER;
    let columns = [
        (sign, Align::Left),
        (name, Align::Left),
        (figure, Align::Right),
        REST,
    ];
    let columns = if area.columns >= LEDGER_WITH_MEANINGS {
        &columns[..]
    } else {
        &columns[..3]
    };
    let area = canvas.line(area, "ledger", BOLD);
    canvas.table(area, columns, ledger_rows(ledger, look));
}

/// Lines of 0 bytes are left out here; `neap stat` shows them all.
fn ledger_rows(ledger: &Ledger, look: &Look) -> Vec<Row> {
    let row = |sign: &str, name: &str, figure: String, meaning: &str| {
        let meaning = format!(" {meaning}");
        Row::new([sign.to_owned(), name.to_owned(), figure, meaning])
    };
    let mut rows = Vec::new();
    for line in ledger.lines().iter().filter(|line| line.bytes > 0) {
        let style = match line.sign {
            Sign::Plus => PLAIN,
            Sign::Minus => GREEN,
        };
        let bytes = Bytes(line.bytes).to_string();
        let sign = line.sign.mark().to_string();
        rows.push(row(&sign, line.name, bytes, line.meaning).styled(style));
    }
    let resident = Bytes(ledger.resident).to_string();
    rows.push(row("=", "resident", resident, "the sum").styled(BOLD));
    let whole = look.view.kernel.process_rss;
    rows.push(row(
        "",
        "not ours",
        difference(whole, ledger.resident),
        match look.view.hint {
            Some(_) => SHORT_HINT,
            None => "resident, elsewhere in the process",
        },
    ));
    rows
}

fn rates(canvas: &mut Canvas, area: Area, rates: &Rates) {
    let bytes = |rate: f64| Bytes(rate as u64).to_string();
    let allocations = rates
        .allocations
        .map_or_else(|| "not counted".to_owned(), count);
    let rows = [
        ("minor faults", count(rates.minor_faults)),
        ("major faults", count(rates.major_faults)),
        ("purges", count(rates.purges)),
        ("purged", bytes(rates.purged_bytes)),
        ("zeroed", bytes(rates.zeroed)),
        ("zeroing saved", bytes(rates.zero_spared)),
        ("refills", count(rates.refills)),
        ("flushes", count(rates.flushes)),
        ("allocations", allocations),
    ];
    let area = canvas.line(area, "a second", BOLD);
    let rows = rows.map(|(name, rate)| Row::new([name.to_owned(), rate]));
    canvas.table(area, &FACT, rows);
}

fn spans(canvas: &mut Canvas, area: Area, look: &Look, figures: &Snapshot) {
    let spans = look
        .view
        .coarse
        .map_or(figures.spans, |coarse| coarse.spans);
    let rows = USE_NAMES.iter().zip(spans).map(|(name, span)| {
        let bytes = Bytes(slices(span.slices)).to_string();
        Row::new([(*name).to_owned(), bytes])
    });
    let area = canvas.line(area, "spans", BOLD);
    canvas.table(area, &FACT, rows);
}

/// The columns of the size classes.
#[rustfmt::skip]
const CLASSES: [Titled<ClassFigures>; 7] = [
    ("class", |class| class.bytes.to_string()),
    ("slabs", |class| class.slabs.to_string()),
    ("live", |class| class.live().to_string()),
    ("free", |class| class.free.to_string()),
    ("cached", |class| class.cached.to_string()),
    ("bytes live", |class| Bytes(bytes(class, ClassFigures::live)).to_string()),
    ("bytes free", |class| Bytes(bytes(class, |class| class.free)).to_string()),
];

fn classes(canvas: &mut Canvas, area: Area, one: &One, snapshot: &Snapshot) {
    let row = |class: &ClassFigures| Row::new(CLASSES.map(|(_, cell)| cell(class)));
    let names = CLASSES.map(|(name, _)| name);
    let classes = one.classes();
    let free = total(snapshot, |class| bytes(class, |class| class.free));
    let text = format!(
        "size classes, by {}: {} free in slabs, {} of it resident",
        one.order.word(),
        Bytes(free),
        Bytes(snapshot.ledger.slab_free.min(free))
    );
    let area = canvas.line(area, &text, BOLD);
    let rows = classes.iter().skip(one.first).map(row);
    figures(canvas, area, &[(10, Align::Right); 7], names, rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;
    use crate::top::{Feed, Pace};
    use crate::view::tests::{any_view, view_at_rest};
    use proptest::prelude::*;
    use std::time::Duration;

    fn drawn(page: Page, width: u16, height: u16) -> String {
        let pace = Pace {
            interval: Duration::from_secs(1),
            count: None,
        };
        let state = State {
            pace,
            page,
            message: String::new(),
        };
        let mut canvas = Canvas::new(height, width);
        screen(&mut canvas, &state);
        canvas.text()
    }

    fn entry(pid: i32, resident: u64) -> Entry {
        Entry {
            pid,
            program: "a\x1b[31mb".into(),
            resident,
            swapped: 0,
            committed: u64::MAX,
            free_dirty: 0,
            purged: 1,
        }
    }

    #[test]
    fn the_list_shows_names_that_a_terminal_would_obey_as_text() {
        let list = List {
            entries: vec![entry(1234, 5 << 20)],
            ..List::default()
        };
        let text = drawn(Page::List(list), 80, 10);
        assert!(text.contains("1234") && text.contains("5.0 MiB"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }

    fn one_of(view: crate::view::View) -> One {
        let feed = Feed::new(Forged::status_page().open(), Duration::from_secs(1)).unwrap();
        let mut one = One::new(feed);
        let rates = Rates::default();
        one.look = Some(Look { view, rates });
        one
    }

    #[test]
    fn python_is_told_how_to_bring_its_objects_in() {
        for (hint, is_told) in [
            (None, false),
            (Some(crate::view::guarded::PYTHON_HINT), true),
        ] {
            let mut view = view_at_rest();
            view.hint = hint;
            let text = drawn(Page::One(Box::new(one_of(view))), 200, 40);
            assert_eq!(text.contains("PYTHONMALLOC=malloc"), is_told, "{text}");
        }
    }

    #[test]
    fn eighty_columns_cut_no_name_and_no_figure() {
        let mut view = view_at_rest();
        let figures = view.figures.as_mut().unwrap();
        figures.ledger.stacks_idle = 1023 << 20;
        figures.ledger.slab_free = 1 << 20;
        let text = drawn(Page::One(Box::new(one_of(view))), 80, 24);
        for whole in [
            "stacks_idle   1023.0 MiB",
            "zeroing saved",
            "not counted",
            "spans",
        ] {
            assert!(text.contains(whole), "no {whole:?} on:\n{text}");
        }
        assert!(text.contains("resident"), "{text}");
    }

    #[test]
    fn the_help_page_explains_keys_and_words() {
        let page = Page::Help(Box::new(Page::List(List::default())));
        let text = drawn(page, 80, 24);
        for word in ["Esc", "slab_free", "free blocks in slabs", "sampling"] {
            assert!(text.contains(word), "no {word:?} on:\n{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_figures_fit_any_terminal(
            view in any_view(),
            width in 1_u16..200,
            height in 0_u16..80,
            residents in proptest::collection::vec(0..1_u64 << 50, 0..300),
            first in 0_usize..100,
        ) {
            let rates = Rates {
                minor_faults: f64::MAX,
                ..Rates::default()
            };
            let feed = Feed::new(Forged::status_page().open(), Duration::from_secs(1)).unwrap();
            let mut one = One::new(feed);
            one.look = Some(Look { view, rates });
            one.residents = residents.into();
            one.first = first;
            let text = drawn(Page::One(Box::new(one)), width, height);
            prop_assert!(!text.contains('\x1b'));
        }
    }
}
