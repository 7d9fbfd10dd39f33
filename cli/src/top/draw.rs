//! Draws the screen.

use super::canvas::{
    BOLD, CYAN, Column, DIM, GREEN, Line, PLAIN, REST, REVERSED, YELLOW, beside, line, row,
    sparkline,
};
use super::feed::{COLUMNS, Look, Rates, Titled, WIDTHS, none};
use super::plain::count;
use super::state::{List, One, Page, State, bytes};
use crate::choice::Choice;
use crate::table::folded;
use crate::view::guarded::SHORT_HINT;
use crate::view::text::difference;
use crate::view::{self, slices, total};
use neap_shared::ledger::{Ledger, Sign};
use neap_shared::stats::{Bytes, ClassFigures, Snapshot, USE_NAMES, ending};
use std::fmt::Alignment;
use std::iter;

/// Lines of the sparkline.
const SPARKLINE: usize = 3;
/// Columns of a ledger line: sign, name, figure, meaning.
const LEDGER: [Column; 4] = [
    (1, Alignment::Left),
    (13, Alignment::Left),
    (10, Alignment::Right),
    REST,
];
/// Width of the ledger without the meaning of each line.
const LEDGER_WITHOUT_MEANINGS: usize = 26;
/// Width of the ledger with the meaning of each line.
const LEDGER_WITH_MEANINGS: usize = 80;
/// A name and a figure beside the ledger.
const FACT: [Column; 2] = [(13, Alignment::Left), (11, Alignment::Right)];
/// Their width.
const FACTS: usize = 25;
/// The least width for the ledger with meanings and the facts beside it.
const WIDE: usize = LEDGER_WITH_MEANINGS + 2 + FACTS;

/// The whole screen.
pub fn screen(state: &State, lines: usize, columns: usize) -> Vec<Line> {
    let body = lines.saturating_sub(1);
    let mut screen = match &state.page {
        Page::List(list) => processes(list, body),
        Page::One(one) => process(one, columns),
        Page::Help(_) => help(),
    };
    screen.resize(body, Line::new());
    screen.push(match state.message.as_str() {
        "" => line(state.page.keys(), DIM),
        message => line(message, YELLOW),
    });
    screen
}

fn processes(list: &List, lines: usize) -> Vec<Line> {
    let text = match list.entries.len() {
        0 => none(),
        1 => "1 process under Neap".to_owned(),
        number => format!("{number} processes under Neap, by {}", list.order.word()),
    };
    let heading = row(&WIDTHS, &COLUMNS.map(|(name, _)| name), DIM);
    // The chosen process stays on the screen, below the title and the heading.
    let skipped = (list.chosen + 3).saturating_sub(lines);
    let entries = list.entries.iter().enumerate().skip(skipped);
    let rows = entries.map(|(index, entry)| {
        let is_chosen = index == list.chosen;
        let style = if is_chosen { REVERSED } else { PLAIN };
        row(&WIDTHS, &entry.cells(), style)
    });
    titled(text, iter::once(heading).chain(rows))
}

/// Lines under a title.
fn titled(title: impl Into<String>, lines: impl IntoIterator<Item = Line>) -> Vec<Line> {
    let title = line(title, BOLD);
    iter::once(title).chain(lines).collect()
}

fn process(one: &One, columns: usize) -> Vec<Line> {
    let Some(look) = &one.look else {
        return vec![line(format!("{} ...", one.title()), PLAIN)];
    };
    let Some(figures) = &look.view.figures else {
        let pending = format!("pending: {}", look.view.silence.why);
        let resident = format!("resident {}", Bytes(look.view.kernel.process_rss));
        let texts = [one.title(), &pending, &resident];
        let lines = texts.into_iter().flat_map(|text| folded(text, columns));
        return lines.map(|text| line(text, PLAIN)).collect();
    };
    let (rates, spans) = (rates(&look.rates), spans(look, figures));
    // A terminal of 80 columns has no room for the meanings of the ledger's lines.
    let middle = if columns >= WIDE {
        let ledger = ledger(&figures.ledger, look, &LEDGER);
        let facts = rates.into_iter().chain(spans).collect();
        beside(ledger, LEDGER_WITH_MEANINGS, facts)
    } else {
        let ledger = ledger(&figures.ledger, look, &LEDGER[..3]);
        beside(ledger, LEDGER_WITHOUT_MEANINGS, beside(rates, FACTS, spans))
    };
    let parts = [resident(one, look, columns), middle, classes(one, figures)];
    parts.into_iter().flatten().collect()
}

/// Explains the keys and the words.
fn help() -> Vec<Line> {
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
    let columns = [FACT[0], REST];
    let rows = keys.into_iter().chain(words);
    let rows = rows.map(|(word, meaning)| row(&columns, &[word, meaning], PLAIN));
    titled("keys, and the lines of the ledger", rows)
}

fn resident(one: &One, look: &Look, columns: usize) -> Vec<Line> {
    let state = match (look.view.state, look.view.age_ms()) {
        (view::State::Pending, Some(age)) => format!(", pending: figures of {} s ago", age / 1000),
        _ => String::new(),
    };
    let errors = match look.view.served.memory_errors {
        0 => String::new(),
        errors => format!(", {errors} memory error{}", ending(errors, "s")),
    };
    let now = look.view.kernel.process_rss;
    let values: Vec<u64> = one.residents.iter().copied().collect();
    let values = &values[values.len().saturating_sub(columns)..];
    let most = Bytes(values.iter().copied().max().unwrap_or(now));
    let (title, now) = (one.title(), Bytes(now));
    let text = format!("{title}: resident {now} (bars: 0 to {most}){errors}{state}");
    let bars = sparkline(values, SPARKLINE, columns, CYAN);
    titled(text, bars)
}

/// Lines of 0 bytes are left out here; `neap stat` shows them all.
fn ledger(ledger: &Ledger, look: &Look, columns: &[Column]) -> Vec<Line> {
    let all = |sign: &str, name: &str, figure: String, meaning: &str, style| {
        let cells = [sign, name, &figure, &format!(" {meaning}")];
        row(columns, &cells, style)
    };
    let mut rows = vec![line("ledger", BOLD)];
    for line in ledger.lines().iter().filter(|line| line.bytes > 0) {
        let style = match line.sign {
            Sign::Plus => PLAIN,
            Sign::Minus => GREEN,
        };
        let (sign, bytes) = (line.sign.mark().to_string(), Bytes(line.bytes).to_string());
        rows.push(all(&sign, line.name, bytes, line.meaning, style));
    }
    let resident = Bytes(ledger.resident).to_string();
    rows.push(all("=", "resident", resident, "the sum", BOLD));
    let apart = difference(look.view.kernel.process_rss, ledger.resident);
    let meaning = match look.view.hint {
        Some(_) => SHORT_HINT,
        None => "resident, elsewhere in the process",
    };
    rows.push(all("", "not ours", apart, meaning, PLAIN));
    rows
}

/// A title, and names with their figures.
fn facts<'a>(title: &str, facts: impl IntoIterator<Item = (&'a str, String)>) -> Vec<Line> {
    let rows = facts.into_iter();
    let rows = rows.map(|(name, figure)| row(&FACT, &[name, &figure], PLAIN));
    titled(title, rows)
}

fn rates(rates: &Rates) -> Vec<Line> {
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
    facts("a second", rows)
}

fn spans(look: &Look, figures: &Snapshot) -> Vec<Line> {
    let coarse = look.view.coarse;
    let spans = coarse.map_or(figures.spans, |coarse| coarse.spans);
    let bytes = spans.map(|span| Bytes(slices(span.slices)).to_string());
    facts("spans", USE_NAMES.into_iter().zip(bytes))
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

fn classes(one: &One, snapshot: &Snapshot) -> Vec<Line> {
    let columns = [(10, Alignment::Right); CLASSES.len()];
    let classes = one.classes();
    let free = total(snapshot, |class| bytes(class, |class| class.free));
    let text = format!(
        "size classes, by {}: {} free in slabs, {} of it resident",
        one.order.word(),
        Bytes(free),
        Bytes(snapshot.ledger.slab_free.min(free))
    );
    let heading = row(&columns, &CLASSES.map(|(name, _)| name), DIM);
    let rows = classes.iter().skip(one.first);
    let rows = rows.map(|class| row(&columns, &CLASSES.map(|(_, cell)| cell(class)), PLAIN));
    titled(text, iter::once(heading).chain(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::testing::Forged;
    use crate::top::canvas::{Colours, sequences};
    use crate::top::feed::Entry;
    use crate::top::{Feed, Pace};
    use crate::view::tests::{any_view, view_at_rest};
    use proptest::prelude::*;
    use std::time::Duration;

    fn drawn(page: Page, width: usize, height: usize) -> String {
        let pace = Pace {
            interval: Duration::from_secs(1),
            count: None,
        };
        let state = State {
            pace,
            page,
            message: String::new(),
        };
        let lines = screen(&state, height, width).into_iter();
        let lines = lines.map(|line| sequences(line, width, Colours::Refused));
        let text = lines.collect::<Vec<_>>().join("\n");
        anstream::adapter::strip_str(&text).to_string()
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
        assert!(text.contains(r"a\u{1b}[31mb"), "{text}");
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
            width in 1_usize..200,
            height in 0_usize..80,
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
