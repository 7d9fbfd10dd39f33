//! Draws the screen.

use super::feed::{Look, Rates};
use super::list::Entry;
use super::plain::count;
use super::state::{List, One, Page, State, bytes};
use crate::attach::of_whom;
use crate::failure::shown;
use crate::view::text::difference;
use crate::view::{self, hint, live, slices, total};
use neap_shared::ledger::{Ledger, Sign};
use neap_shared::stats::{Bytes, ClassFigures, Snapshot, USE_NAMES};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, TableState, Wrap};

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

/// Draws the whole screen.
pub fn screen(frame: &mut Frame, state: &State) {
    let [body, keys] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    match &state.page {
        Page::List(list) => processes(frame, body, list),
        Page::One(one) => process(frame, body, one),
        Page::Help(_) => help(frame, body),
    }
    let line = match state.message.as_str() {
        "" => Line::styled(state.page.keys(), Style::new().add_modifier(Modifier::DIM)),
        message => Line::styled(message, Style::new().fg(Color::Yellow)),
    };
    frame.render_widget(line, keys);
}

fn title(text: impl Into<String>) -> Block<'static> {
    let style = Style::new().add_modifier(Modifier::BOLD);
    Block::new().title(Line::styled(text.into(), style))
}

/// A row of right-aligned cells.
fn cells<const N: usize>(cells: [String; N]) -> Row<'static> {
    Row::new(cells.map(|cell| Line::from(cell).alignment(Alignment::Right)))
}

fn heading<const N: usize>(names: [&str; N]) -> Row<'static> {
    cells(names.map(str::to_owned)).style(Style::new().add_modifier(Modifier::DIM))
}

fn processes(frame: &mut Frame, area: Rect, list: &List) {
    let row = |entry: &Entry| {
        let figures = [
            entry.resident,
            entry.committed,
            entry.free_dirty,
            entry.purged,
        ];
        let [resident, committed, free, purged] = figures.map(|figure| Bytes(figure).to_string());
        let name = format!("  {}", shown(&entry.program));
        let cells = [entry.pid.to_string(), resident, committed, free, purged];
        let cells = cells.map(|cell| Line::from(cell).alignment(Alignment::Right));
        Row::new(cells.into_iter().chain([Line::from(name)]))
    };
    let widths = [8, 11, 11, 11, 11].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(8)]);
    let names = ["PID", "resident", "committed", "free", "purged", "program"];
    let text = match list.entries.len() {
        0 => format!(
            "no process{} runs under Neap: start one with neap run",
            of_whom()
        ),
        1 => "1 process under Neap".to_owned(),
        number => format!("{number} processes under Neap, by {}", list.order.word()),
    };
    let table = Table::new(list.entries.iter().map(row), widths)
        .header(heading(names))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(title(text));
    let mut state = TableState::new().with_selected(Some(list.chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

fn process(frame: &mut Frame, area: Rect, one: &One) {
    let Some(look) = &one.look else {
        return frame.render_widget(Paragraph::new(format!("{} ...", one.title())), area);
    };
    let Some(figures) = &look.view.figures else {
        let text = format!(
            "{}\npending: {}\nresident {}",
            one.title(),
            look.view.silence.why,
            Bytes(look.view.kernel.process_rss)
        );
        let paragraph = Paragraph::new(text).wrap(Wrap { trim: true });
        return frame.render_widget(paragraph, area);
    };
    let places = Places::of(
        area,
        figures
            .ledger
            .lines()
            .iter()
            .filter(|line| line.bytes > 0)
            .count(),
    );
    resident(frame, places.resident, one, look);
    ledger(frame, places.ledger, &figures.ledger, look);
    rates(frame, places.rates, &look.rates);
    spans(frame, places.spans, look, figures);
    classes(frame, places.classes, one, figures);
}

/// The areas of a process's page.
struct Places {
    resident: Rect,
    ledger: Rect,
    rates: Rect,
    spans: Rect,
    classes: Rect,
}

impl Places {
    /// The areas for a ledger of `lines` lines. A terminal of 80 columns has no room for their
    /// meanings.
    fn of(area: Rect, lines: usize) -> Places {
        // A title, the sum, and the memory outside the arenas.
        let lines = u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(3);
        let facts = FACTS.iter().sum::<u16>() + 1;
        let is_wide = area.width >= LEDGER_WITH_MEANINGS + GAP + facts;
        let height = match is_wide {
            true => lines.max(RATES + USES),
            false => lines.max(RATES),
        };
        let [resident, middle, classes] = Layout::vertical([
            Constraint::Length(SPARKLINE),
            Constraint::Length(height),
            Constraint::Min(0),
        ])
        .areas(area);
        let (ledger, rates, spans) = match is_wide {
            true => Places::in_two_columns(middle, facts),
            false => Places::in_three_columns(middle, facts),
        };
        Places {
            resident,
            ledger,
            rates,
            spans,
            classes,
        }
    }

    fn in_two_columns(area: Rect, facts: u16) -> (Rect, Rect, Rect) {
        let widths = [LEDGER_WITH_MEANINGS, facts].map(Constraint::Length);
        let [ledger, right] = Layout::horizontal(widths).spacing(GAP).areas(area);
        let heights = [Constraint::Length(RATES), Constraint::Min(0)];
        let [rates, spans] = Layout::vertical(heights).areas(right);
        (ledger, rates, spans)
    }

    fn in_three_columns(area: Rect, facts: u16) -> (Rect, Rect, Rect) {
        let bare = LEDGER.iter().sum::<u16>() + 2;
        let widths = [bare, facts, facts].map(Constraint::Length);
        let [ledger, rates, spans] = Layout::horizontal(widths).spacing(GAP).areas(area);
        (ledger, rates, spans)
    }
}

/// Explains the keys and the words.
fn help(frame: &mut Frame, area: Rect) {
    let keys = [
        ("q, Ctrl-C", "quit"),
        ("arrows", "choose a process, scroll size classes"),
        ("Enter", "look into the chosen process"),
        ("Esc", "back to the list"),
        ("p", "have the process give its free memory back"),
        ("s", "sort by the next column"),
        ("?", "this page"),
    ];
    let ledger = Ledger::default().lines();
    let words = ledger.iter().map(|line| (line.name, line.meaning));
    let rows = keys
        .into_iter()
        .chain(words)
        .map(|(word, meaning)| Row::new([word, meaning]));
    let widths = [Constraint::Length(LEDGER[1]), Constraint::Min(0)];
    let table = Table::new(rows, widths).block(title("keys, and the lines of the ledger"));
    frame.render_widget(table, area);
}

fn resident(frame: &mut Frame, area: Rect, one: &One, look: &Look) {
    let state = match (look.view.state, look.view.age_ms()) {
        (view::State::Pending, Some(age)) => format!(", pending: figures of {} s ago", age / 1000),
        _ => String::new(),
    };
    let now = look.view.kernel.process_rss;
    let text = format!("{}: resident {}{state}", one.title(), Bytes(now));
    let width = usize::from(area.width);
    let skipped = one.residents.len().saturating_sub(width);
    let data: Vec<u64> = one.residents.iter().skip(skipped).copied().collect();
    let line = Sparkline::default()
        .data(data)
        .style(Style::new().fg(Color::Cyan))
        .block(title(text));
    frame.render_widget(line, area);
}

fn ledger(frame: &mut Frame, area: Rect, ledger: &Ledger, look: &Look) {
    let meaning = (area.width >= LEDGER_WITH_MEANINGS).then_some(Constraint::Min(0));
    let widths = LEDGER.map(Constraint::Length).into_iter().chain(meaning);
    let table = Table::new(ledger_rows(ledger, look), widths).block(title("ledger"));
    frame.render_widget(table, area);
}

/// Lines of 0 bytes are left out here; `neap stat` shows them all.
fn ledger_rows(ledger: &Ledger, look: &Look) -> Vec<Row<'static>> {
    let row = |sign: &str, name: &str, figure: String, meaning: &str| {
        let figure = Line::from(figure).alignment(Alignment::Right);
        Row::new([
            Line::from(sign.to_owned()),
            Line::from(name.to_owned()),
            figure,
            Line::from(format!(" {meaning}")),
        ])
    };
    let mut rows = Vec::new();
    for line in ledger.lines().iter().filter(|line| line.bytes > 0) {
        let color = match line.sign {
            Sign::Plus => Color::Reset,
            Sign::Minus => Color::Green,
        };
        let bytes = Bytes(line.bytes).to_string();
        let sign = line.sign.mark().to_string();
        rows.push(row(&sign, line.name, bytes, line.meaning).style(Style::new().fg(color)));
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    rows.push(
        row(
            "=",
            "resident",
            Bytes(ledger.resident).to_string(),
            "the sum",
        )
        .style(bold),
    );
    let whole = look.view.kernel.process_rss;
    rows.push(row(
        "",
        "not ours",
        difference(whole, ledger.resident),
        match look.view.hint {
            Some(_) => hint::SHORT,
            None => "resident, elsewhere in the process",
        },
    ));
    rows
}

fn rates(frame: &mut Frame, area: Rect, rates: &Rates) {
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
    let rows = rows.map(|(name, rate)| {
        Row::new([
            Line::from(name),
            Line::from(rate).alignment(Alignment::Right),
        ])
    });
    let widths = FACTS.map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).block(title("a second")), area);
}

fn spans(frame: &mut Frame, area: Rect, look: &Look, figures: &Snapshot) {
    let spans = look
        .view
        .coarse
        .map_or(figures.spans, |coarse| coarse.spans);
    let rows = USE_NAMES.iter().zip(spans).map(|(name, span)| {
        let bytes = Bytes(slices(span.slices)).to_string();
        Row::new([
            Line::from(*name),
            Line::from(bytes).alignment(Alignment::Right),
        ])
    });
    let widths = FACTS.map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).block(title("spans")), area);
}

fn classes(frame: &mut Frame, area: Rect, one: &One, figures: &Snapshot) {
    let row = |class: &ClassFigures| {
        let counts = [
            class.bytes,
            class.slabs,
            live(class),
            class.free,
            class.cached,
        ];
        let [size, slabs, live_blocks, free, cached] = counts.map(|count| count.to_string());
        let live_bytes = Bytes(bytes(class, live)).to_string();
        let free_bytes = Bytes(bytes(class, |class| class.free)).to_string();
        cells([
            size,
            slabs,
            live_blocks,
            free,
            cached,
            live_bytes,
            free_bytes,
        ])
    };
    let names = [
        "class",
        "slabs",
        "live",
        "free",
        "cached",
        "bytes live",
        "bytes free",
    ];
    let classes = one.classes();
    let rows = classes.iter().skip(one.first).map(row);
    let free = total(figures, |class| bytes(class, |class| class.free));
    let text = format!(
        "size classes, by {}: {} free in slabs, {} of it resident",
        one.order.word(),
        Bytes(free),
        Bytes(figures.ledger.slab_free.min(free))
    );
    let table = Table::new(rows, [10; 7].map(Constraint::Length))
        .header(heading(names))
        .block(title(text));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::forged::Forged;
    use crate::top::{Feed, Pace};
    use crate::view::tests::{any_view, view_at_rest};
    use proptest::prelude::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
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
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen(frame, &state)).unwrap();
        terminal.backend().to_string()
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
        let feed = Feed::new(Forged::board().open(), Duration::from_secs(1)).unwrap();
        let mut one = One::new(feed);
        let rates = Rates::default();
        one.look = Some(Look { view, rates });
        one
    }

    #[test]
    fn python_is_told_how_to_bring_its_objects_in() {
        for (hint, is_told) in [(None, false), (Some(hint::PYTHON), true)] {
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
        figures.ledger.stacks_parked = 1023 << 20;
        figures.ledger.slab_free = 1 << 20;
        let text = drawn(Page::One(Box::new(one_of(view))), 80, 24);
        for whole in [
            "stacks_parked 1023.0 MiB",
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
            let feed = Feed::new(Forged::board().open(), Duration::from_secs(1)).unwrap();
            let mut one = One::new(feed);
            one.look = Some(Look { view, rates });
            one.residents = residents.into();
            one.first = first;
            let text = drawn(Page::One(Box::new(one)), width, height);
            prop_assert!(!text.contains('\x1b'));
        }
    }
}
