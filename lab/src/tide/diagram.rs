//! The write-up's picture, drawn from the measurements: heap, stacks and OS, and the arrows between
//! them, for a selection of engines.

use super::arrows::{self, Arrow, Flow, Place, State};
use super::observed::Observed;
use super::steps::Run;
use crate::engine::record::Record;
use crate::engine::svg::Svg;

const PANEL: (f64, f64) = (316.0, 250.0);
const TOP: f64 = 30.0;
const BOX: (f64, f64) = (84.0, 34.0);
/// Distance between the two arrows of a pair of boxes.
const APART: f64 = 18.0;
const COLOURS: [(State, &str); 3] = [
    (State::Open, "#009e73"),
    (State::Partly, "#b37700"),
    (State::Closed, "#c0392b"),
];

/// The centre of a box within a panel.
fn centre(place: Place) -> (f64, f64) {
    match place {
        Place::Heap => (64.0, 74.0),
        Place::Stacks => (PANEL.0 - 64.0, 74.0),
        Place::System => (PANEL.0 / 2.0, 212.0),
    }
}

/// The engines to draw: Go, the C library, the best of the others, Neap.
fn chosen<'a>(observed: &Observed<'a>) -> Vec<&'a str> {
    let measured = |name: &&str| arrows::flow(observed, name, arrows::ALL[2]).is_some();
    let best = arrows::best_peer(observed);
    let all = [Some("go"), Some("glibc"), best, Some("neap")];
    all.into_iter().flatten().filter(measured).collect()
}

/// An SVG document.
pub fn svg(record: &Record) -> String {
    let observed = Observed::of(record);
    let engines = chosen(&observed);
    let width = PANEL.0 * engines.len().max(2) as f64;
    let height = TOP + PANEL.1 + 34.0;
    let mut out = Svg::new((width, height));
    heads(&mut out);
    let title = "Whose memory goes where: MB that passed, of what was offered and could be used";
    out.words((16.0, 20.0), "start", title);
    for (place, engine) in engines.iter().enumerate() {
        panel(&mut out, &observed, engine, PANEL.0 * place as f64);
    }
    legend(&mut out, height - 16.0);
    out.finish()
}

/// The arrowheads, one per colour: SVG 1.1 cannot inherit the line's.
fn heads(out: &mut Svg) {
    for (state, colour) in COLOURS {
        out.push(format_args!(
            "<marker id=\"{state:?}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" \
                 markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" \
                 orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{colour}\"/></marker>"
        ));
    }
}

fn panel(out: &mut Svg, observed: &Observed, engine: &str, left: f64) {
    out.push(format_args!("<g transform=\"translate({left} {TOP})\">"));
    out.push(format_args!(
        "<text x=\"{}\" y=\"30\" text-anchor=\"middle\" font-size=\"14\" \
             font-weight=\"bold\">{}</text>",
        PANEL.0 / 2.0,
        title(observed, engine)
    ));
    for arrow in arrows::ALL {
        if let Some(flow) = arrows::flow(observed, engine, arrow) {
            draw(out, arrow, &flow);
        }
    }
    for place in [Place::Heap, Place::Stacks, Place::System] {
        place_box(out, place);
    }
    out.push(format_args!("</g>"));
}

fn title(observed: &Observed, engine: &str) -> String {
    let is_best = arrows::best_peer(observed) == Some(engine);
    match is_best && observed.engines(&[Run::Waited]).len() > 3 {
        true => format!("{engine} (best peer)"),
        false => engine.to_string(),
    }
}

fn place_box(out: &mut Svg, place: Place) {
    let (x, y) = centre(place);
    out.push(format_args!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{}\" height=\"{}\" rx=\"7\" fill=\"#f3f5f7\" \
             stroke=\"#555\"/>",
        x - BOX.0 / 2.0,
        y - BOX.1 / 2.0,
        BOX.0,
        BOX.1
    ));
    out.push(format_args!(
        "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"13\">{}</text>",
        y + 4.5,
        place.name()
    ));
}

/// A drawn arrow: its ends, and the position of its label.
struct Line {
    from: (f64, f64),
    to: (f64, f64),
    words: (f64, f64),
    anchor: &'static str,
}

/// The two arrows of a pair are drawn apart. Those to the OS are outside, because their labels are
/// long.
fn place(arrow: Arrow) -> Line {
    let (a, b) = (centre(arrow.from), centre(arrow.to));
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length = dx.hypot(dy);
    let u = (dx / length, dy / length);
    let side = match (arrow.from, arrow.to) {
        (Place::Heap, Place::System) | (Place::System, Place::Heap) => -1.0,
        _ => 1.0,
    };
    // Left or right of the direction, on a page whose y axis points down.
    let s = (u.1 * side * APART / 2.0, -u.0 * side * APART / 2.0);
    let from = edge(a, u, s);
    let to = edge(b, (-u.0, -u.1), s);
    // Between the arrows from the OS there is room nearer to the boxes.
    let at = if arrow.from == Place::System {
        0.62
    } else {
        0.5
    };
    let along = (from.0 + (to.0 - from.0) * at, from.1 + (to.1 - from.1) * at);
    let (words, anchor) = beside(along, s);
    Line {
        from,
        to,
        words,
        anchor,
    }
}

/// Where a line in direction `u`, shifted by `s` from a box's centre, leaves the box, with a
/// margin.
fn edge(centre: (f64, f64), u: (f64, f64), s: (f64, f64)) -> (f64, f64) {
    const AIR: f64 = 4.0;
    let reach = |half: f64, u: f64, s: f64| match u.abs() < 1e-9 {
        true => f64::INFINITY,
        false => ((half + AIR) * u.signum() - s) / u,
    };
    let across = reach(BOX.0 / 2.0, u.0, s.0);
    let down = reach(BOX.1 / 2.0, u.1, s.1);
    let far = across.min(down);
    (centre.0 + s.0 + u.0 * far, centre.1 + s.1 + u.1 * far)
}

/// An arrow's label is on the side that the arrow is shifted to.
fn beside((x, y): (f64, f64), (sx, sy): (f64, f64)) -> ((f64, f64), &'static str) {
    if sx.abs() < 1.0 {
        let y = if sy < 0.0 { y - 8.0 } else { y + 17.0 };
        return ((x, y), "middle");
    }
    let anchor = if sx > 0.0 { "start" } else { "end" };
    ((x + 9.0 * sx.signum(), y + 4.0 + 4.0 * sy.signum()), anchor)
}

fn draw(out: &mut Svg, arrow: Arrow, flow: &Flow) {
    let state = flow.state();
    let Line {
        from,
        to,
        words,
        anchor,
    } = place(arrow);
    let colour = colour(state);
    stroke(out, from, to, state);
    if state == State::Closed {
        cross(out, ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0), colour);
    }
    out.push(format_args!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>",
        words.0,
        words.1,
        label(arrow, flow)
    ));
}

/// An arrow's line and head.
fn stroke(out: &mut Svg, from: (f64, f64), to: (f64, f64), state: State) {
    let (dash, width) = match state {
        State::Open => ("none", 2.4),
        State::Partly => ("7 4", 1.8),
        State::Closed => ("2 4", 1.6),
    };
    out.push(format_args!(
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{}\" stroke-width=\"{width}\" \
             stroke-dasharray=\"{dash}\" marker-end=\"url(#{state:?})\"/>",
        from.0,
        from.1,
        to.0,
        to.1,
        colour(state)
    ));
}

fn cross(out: &mut Svg, (x, y): (f64, f64), colour: &str) {
    out.push(format_args!(
        "<path d=\"M{:.1} {:.1}l10 10m0 -10l-10 10\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        x - 5.0,
        y - 5.0
    ));
}

fn colour(state: State) -> &'static str {
    let found = COLOURS.iter().find(|(known, _)| *known == state);
    found.map_or("#222", |(_, colour)| colour)
}

/// For an arrow from the OS, the amount requested; else the share of what was offered.
fn label(arrow: Arrow, flow: &Flow) -> String {
    let mib = |kib: u64| format!("{:.0}", kib as f64 / 1_024.0);
    match arrow.from {
        Place::System => mib(flow.passed),
        _ => format!("{} of {}", mib(flow.passed), mib(flow.offered)),
    }
}

fn legend(out: &mut Svg, y: f64) {
    let words = [
        (State::Open, "open: nine tenths or more"),
        (State::Partly, "partly"),
        (State::Closed, "closed: a tenth at most"),
    ];
    let mut x = 16.0;
    for (state, words) in words {
        stroke(out, (x, y), (x + 26.0, y), state);
        out.words((x + 34.0, y + 4.0), "start", words);
        x += 54.0 + 6.2 * words.len() as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::observed::tests::{KEEPING, add, example};
    use super::*;

    #[test]
    fn an_arrow_lies_between_its_boxes_and_not_on_the_one_back() {
        for arrow in arrows::ALL {
            let back = place(Arrow {
                from: arrow.to,
                to: arrow.from,
            });
            let line = place(arrow);
            let (dx, dy) = (line.to.0 - line.from.0, line.to.1 - line.from.1);
            let (bx, by) = (back.to.0 - line.from.0, back.to.1 - line.from.1);
            let apart = (dx * by - dy * bx).abs() / dx.hypot(dy);
            assert!((apart - APART).abs() < 0.1, "{arrow:?}: {apart}");
            assert!(line.from.0 > 0.0 && line.to.0 < PANEL.0, "{arrow:?}");
        }
    }

    #[test]
    fn the_picture_has_six_arrows_an_engine_and_crosses_where_they_are_closed() {
        let mut record = example();
        add(&mut record, "glibc", &KEEPING);
        add(&mut record, "jemalloc", &KEEPING);
        let out = svg(&record);
        let lines = out.matches("marker-end").count();
        assert_eq!(lines, 6 * 4 + 3, "four engines and the legend");
        assert_eq!(out.matches("l10 10").count(), 4 * 3);
        for words in [
            ">jemalloc (best peer)</text>",
            ">100 of 100</text>",
            ">0 of 200</text>",
        ] {
            assert!(out.contains(words), "no {words}");
        }
        assert!(out.ends_with("</svg>\n") && !svg(&Record::default()).contains("NaN"));
    }
}
