//! The campaign as JSON.

use serde_json::json;

use super::arrows;
use super::record::Record;
use super::steps::{Run, Step};
use super::tables::{all_engines, pairs, word};
use crate::stats::{Comparison, quantile};
use crate::work::tide::prices::Priced;

/// Every step, every arrow and every price.
pub fn campaign(record: &Record) -> serde_json::Value {
    let head: serde_json::Map<_, _> = record
        .head
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let engines = all_engines(record);
    let steps: Vec<_> = engines
        .iter()
        .flat_map(|engine| json_steps(record, engine))
        .collect();
    let arrows: Vec<_> = engines
        .iter()
        .flat_map(|engine| json_arrows(record, engine))
        .collect();
    let prices: Vec<_> = Priced::ALL
        .iter()
        .filter_map(|price| json_price(record, *price))
        .collect();
    json!({ "head": head, "steps": steps, "arrows": arrows, "prices": prices })
}

fn json_steps(record: &Record, engine: &str) -> Vec<serde_json::Value> {
    let mut steps = Vec::new();
    for run in Run::ALL {
        let base = record.step(engine, run, Step::Start).map(|seen| seen.rss);
        for seen in Step::ALL
            .iter()
            .filter_map(|step| record.step(engine, run, *step))
        {
            steps.push(json!({
                "engine": engine, "run": run.name(), "step": seen.step.name(),
                "rss_kib": seen.rss, "later_kib": seen.later, "peak_kib": seen.peak,
                "full_kib": seen.done.full_kib, "live_kib": seen.done.live_kib, "base_kib": base,
                "tables_kib": seen.tables, "minor_faults": seen.done.faults, "ns": seen.done.ns,
                "coroutines": seen.done.coroutines,
                "free_dirty_kib": seen.heap.neap.map(|(dirty, _)| dirty),
                "purged_kib": seen.heap.neap.map(|(_, purged)| purged),
                "note": seen.done.note,
            }));
        }
    }
    steps
}

fn json_arrows(record: &Record, engine: &str) -> Vec<serde_json::Value> {
    let of_arrow = |arrow: &arrows::Arrow| {
        let flow = arrows::flow(record, engine, *arrow)?;
        Some(json!({
            "engine": engine, "from": arrow.from.name(), "to": arrow.to.name(),
            "passed_kib": flow.passed, "offered_kib": flow.offered, "state": word(flow.state()),
        }))
    };
    arrows::ALL.iter().filter_map(of_arrow).collect()
}

fn json_price(record: &Record, price: Priced) -> Option<serde_json::Value> {
    let pairs = pairs(record, price);
    let comparison = Comparison::of(&pairs)?;
    let (neap, own): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    Some(json!({
        "price": price.name(), "own_ns": quantile(&own, 0.5), "neap_ns": quantile(&neap, 0.5),
        "ratio": comparison.median, "quartiles": [comparison.quartiles.0, comparison.quartiles.1],
        "separable": comparison.separable(), "rounds": comparison.pairs,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::example;
    use super::*;

    #[test]
    fn programs_get_the_same() {
        let json = campaign(&example());
        let len = |key: &str| json[key].as_array().unwrap().len();
        assert_eq!((len("steps"), len("arrows"), len("prices")), (32, 12, 4));
        assert_eq!(json["steps"][1]["base_kib"], 2_048);
        assert_eq!(json["head"]["coroutines"], "50000");
    }
}
