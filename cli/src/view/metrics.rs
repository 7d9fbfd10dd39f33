//! The metrics for Prometheus, and its text format, version 0.0.4. Each metric is declared once,
//! here; a test checks that `docs/grafana-neap.json` uses no other. (The prometheus-client crate
//! writes OpenMetrics, which declares counters without their `_total`.)

use super::{State, View, slices, used};
use askama::Template;
use neap_shared::ledger::Ledger;
use neap_shared::stats::{ClassFigures, Snapshot, SpanFigures, USE_NAMES};

/// A metric: its name without `neap_`, its meaning, and the source of its values.
type Metric = (&'static str, &'static str, Values);

/// The source of a metric's values.
enum Values {
    /// One value per process.
    View(fn(&View) -> f64),
    /// One value per process that has figures.
    Figures(fn(&Snapshot) -> u64),
    /// Several values, told apart by a label of this name.
    By(&'static str, fn(&View) -> Vec<(String, u64)>),
}

#[rustfmt::skip]
const METRICS: &[Metric] = &[
    ("fresh", "1 if the process answered; 0 if its figures are older, or it has none yet.",
        Values::View(|view| f64::from(u8::from(view.state == State::Fresh)))),
    ("kernel_arenas_resident_bytes", "Resident in Neap's arenas, as the kernel counts.",
        Values::View(|view| view.kernel.arenas_rss as f64)),
    ("kernel_arenas_swapped_bytes", "Swapped out of Neap's arenas, as the kernel counts.",
        Values::View(|view| view.kernel.arenas_swap as f64)),
    ("process_resident_bytes", "Resident, the whole process.",
        Values::View(|view| view.kernel.process_rss as f64)),
    ("process_swapped_bytes", "Swapped out, the whole process.",
        Values::View(|view| view.kernel.process_swap as f64)),
    ("not_ours_bytes", "Resident in the process and not in Neap's arenas.",
        Values::View(|view| view.kernel.foreign_rss() as f64)),
    ("resident_bytes", "The ledger's sum: resident in Neap's arenas.",
        Values::Figures(|figures| figures.ledger.resident)),
    ("live_bytes", "Usable bytes of blocks in the program's hands.",
        Values::Figures(|figures| figures.live)),
    ("large_bytes", "Of these, in large blocks.",
        Values::Figures(|figures| figures.large_bytes)),
    ("committed_bytes", "Readable and writable address space.",
        Values::Figures(|figures| figures.committed)),
    ("reserved_bytes", "Address space reserved.", Values::Figures(|figures| figures.reserved)),
    ("threads", "Threads that have magazines.", Values::Figures(|figures| figures.threads)),
    ("stacks", "Coroutine stacks, by state.", Values::By("state", stacks)),
    ("spans", "Spans of the page heap, by use.", Values::By("use", |view| by_use(view, |span| span.spans))),
    ("span_bytes", "Bytes of spans of the page heap, by use.",
        Values::By("use", |view| by_use(view, |span| slices(span.slices)))),
    ("class_live_blocks", "Blocks in the program's hands, by size class.",
        Values::By("class", |view| by_class(view, ClassFigures::live))),
    ("class_free_blocks", "Blocks free in slabs, by size class.",
        Values::By("class", |view| by_class(view, |class| class.free))),
    ("class_cached_blocks", "Blocks free in magazines, by size class.",
        Values::By("class", |view| by_class(view, |class| class.cached))),
    ("class_refills", "Refills of magazines by live threads, by size class.",
        Values::By("class", |view| by_class(view, |class| class.refills))),
    ("class_flushes", "Flushes of magazines by live threads, by size class.",
        Values::By("class", |view| by_class(view, |class| class.flushes))),
    ("minor_faults_total", "Page faults that needed no disk.",
        Values::Figures(|figures| figures.minor_faults)),
    ("major_faults_total", "Page faults that needed the disk.",
        Values::Figures(|figures| figures.major_faults)),
    ("purges_total", "Times that free pages were given back to the kernel.",
        Values::Figures(|figures| figures.purges)),
    ("purged_bytes_total", "Free bytes given back to the kernel.",
        Values::Figures(|figures| figures.purged_bytes)),
    ("regretted_bytes_total", "Of these, wanted again within the decay time.",
        Values::Figures(|figures| figures.regretted_bytes)),
    ("refused_total", "Requests for memory that a limit or the kernel refused.",
        Values::Figures(|figures| figures.refused)),
    ("zeroed_bytes_total", "Written with zeros for large callocs.",
        Values::Figures(|figures| figures.zeroed)),
    ("zero_spared_bytes_total", "Of large callocs, known to be zero and not written.",
        Values::Figures(|figures| figures.zero_spared)),
    ("zero_purged_bytes_total", "Of large callocs, given back to the kernel instead.",
        Values::Figures(|figures| figures.zero_purged)),
    ("guarded_blocks_total", "Allocations that were put between guard pages.",
        Values::View(|view| view.served.guarded_blocks as f64)),
    ("memory_errors_total", "Memory errors that guarded allocations have shown.",
        Values::View(|view| view.served.memory_errors as f64)),
    ("figures_seconds_total", "Time that the process spent on writing its figures.",
        Values::View(|view| view.served.cost_ns as f64 / 1e9)),
];

fn stacks(view: &View) -> Vec<(String, u64)> {
    let stacks = view.figures.iter().map(|figures| figures.stacks);
    let counts = stacks.flat_map(|stacks| [stacks.used, stacks.idle, stacks.free]);
    let states = ["used", "idle", "free"].map(str::to_owned);
    states.into_iter().zip(counts).collect()
}

fn by_class(view: &View, value: fn(&ClassFigures) -> u64) -> Vec<(String, u64)> {
    let classes = view.figures.iter().flat_map(used);
    classes
        .map(|class| (class.bytes.to_string(), value(class)))
        .collect()
}

/// The page heap keeps these up to date, without a request.
fn by_use(view: &View, value: fn(&SpanFigures) -> u64) -> Vec<(String, u64)> {
    let coarse = view.coarse.as_ref().map(|coarse| coarse.spans);
    let spans = coarse.or(view.figures.as_ref().map(|figures| figures.spans));
    let named = USE_NAMES.iter().zip(spans.iter().flatten());
    named
        .map(|(name, span)| (name.replace(' ', "_"), value(span)))
        .collect()
}

/// All metrics of these processes.
pub fn page(views: &[View]) -> String {
    let mut out = String::new();
    for (index, line) in Ledger::default().lines().iter().enumerate() {
        let name = ledger_name(line.name);
        let help = format!("Ledger: {}.", line.meaning);
        let value = |view: &View| view.figures.map(|f| f.ledger.lines()[index].bytes as f64);
        let samples: Vec<Sample> = views
            .iter()
            .filter_map(|view| Some(sample(view, None, value(view)?)))
            .collect();
        write(&mut out, &name, &help, samples);
    }
    for (name, help, values) in METRICS {
        let samples: Vec<Sample> = views.iter().flat_map(|view| values.samples(view)).collect();
        write(&mut out, &format!("neap_{name}"), help, samples);
    }
    out
}

fn ledger_name(line: &str) -> String {
    format!("neap_{line}_bytes")
}

fn sample(view: &View, label: Option<(&'static str, String)>, value: f64) -> Sample {
    let own = view.place.labels(view.pid, &view.program);
    Sample {
        labels: own.into_iter().chain(label).collect(),
        value,
    }
}

impl Values {
    fn samples(&self, view: &View) -> Vec<Sample> {
        match *self {
            Values::View(value) => vec![sample(view, None, value(view))],
            Values::Figures(value) => (view.figures.iter())
                .map(|figures| sample(view, None, value(figures) as f64))
                .collect(),
            Values::By(label, values) => (values(view).into_iter())
                .map(|(name, value)| sample(view, Some((label, name)), value as f64))
                .collect(),
        }
    }
}

/// The media type.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values, in order.
    pub labels: Vec<(&'static str, String)>,
    /// The value in the metric's unit.
    pub value: f64,
}

/// A metric with all its samples, or nothing if it has none. A name that ends with `_total` is a
/// counter, which only rises until the process ends; others are gauges.
#[derive(Template)]
#[template(path = "metric.txt")]
struct Written<'a> {
    name: &'a str,
    help: &'a str,
    samples: Vec<Sample>,
}

fn write(out: &mut String, name: &str, help: &str, samples: Vec<Sample>) {
    let metric = Written {
        name,
        help,
        samples,
    };
    *out += &metric.to_string();
}

/// Escapes a label's value as the format requires. Other control characters are made visible, so
/// that they cannot control a terminal.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter {
            '\n' => out += "\\n",
            '\\' | '"' => out.extend(['\\', letter]),
            _ if letter.is_control() => {
                out += &letter.escape_default().to_string().replace('\\', "\\\\");
            }
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::Whereabouts;
    use crate::view::tests::view_at_rest;
    use std::collections::BTreeSet;

    fn view() -> View {
        let mut figures = Snapshot::default();
        figures.classes[3].blocks = 4;
        View {
            program: "a".into(),
            place: Whereabouts::of("0::/system.slice/a.service"),
            figures: Some(figures),
            ..view_at_rest()
        }
    }

    fn names() -> BTreeSet<String> {
        let page = page(&[view()]);
        let words = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        words
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect()
    }

    #[test]
    fn every_metric_is_written_once_and_has_a_name_that_tells_its_kind() {
        let lines = Ledger::default().lines().len();
        assert_eq!(names().len(), METRICS.len() + lines);
        for (name, help, _) in METRICS {
            assert!(help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn a_process_without_figures_has_what_the_kernel_knows() {
        let mut view = view();
        (view.figures, view.state) = (None, State::Pending);
        let page = page(&[view]);
        assert!(page.contains("neap_fresh{pid=\"7\",program=\"a\",unit=\"a.service\"} 0\n"));
        assert!(!page.contains("neap_requested_bytes"));
    }

    #[test]
    fn the_dashboard_uses_metrics_that_there_are() {
        let text = include_str!("../../../docs/grafana-neap.json");
        let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut used = BTreeSet::new();
        expressions(&dashboard, &mut |expression| {
            let words =
                expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            used.extend(
                words
                    .filter(|word| word.starts_with("neap_"))
                    .map(str::to_owned),
            );
        });
        assert!(used.len() > 20, "{used:?}");
        let missing: Vec<_> = used.difference(&names()).cloned().collect();
        assert!(missing.is_empty(), "not exported: {missing:?}");
    }

    /// The queries of panels (`expr`) and of variables (`query`).
    fn expressions(value: &serde_json::Value, found: &mut impl FnMut(&str)) {
        match value {
            serde_json::Value::Object(object) => {
                for (key, value) in object {
                    match (key.as_str(), value.as_str()) {
                        ("expr" | "query" | "definition", Some(text)) => found(text),
                        _ => expressions(value, found),
                    }
                }
            }
            serde_json::Value::Array(values) => {
                values.iter().for_each(|value| expressions(value, found));
            }
            _ => {}
        }
    }

    #[test]
    fn names_of_processes_cannot_break_out_of_their_quotes() {
        let labels = vec![("pid", "1".into()), ("program", "a\"b\\c\nd\x1b[".into())];
        let mut out = String::new();
        let sample = Sample {
            labels,
            value: 1e21,
        };
        write(&mut out, "neap_x_bytes", "What it is.", vec![sample]);
        let expected = "# HELP neap_x_bytes What it is.\n# TYPE neap_x_bytes gauge\n\
             neap_x_bytes{pid=\"1\",program=\"a\\\"b\\\\c\\nd\\\\u{1b}[\"} \
             1000000000000000000000\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn nothing_is_declared_without_samples() {
        let mut out = String::new();
        write(&mut out, "neap_x", "x", vec![]);
        assert_eq!(out, "");
    }
}
