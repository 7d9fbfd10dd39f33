//! The price of a coroutine on both kinds of stacks, in a process of its own.

use std::time::Instant;

use anyhow::ensure;
use clap::ValueEnum;

use super::coroutines::parked;
use super::stacks::{Own, Shared, Source, StackKind};
use corosensei::Coroutine;

/// A timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Priced {
    /// Creating many coroutines and ending them all, first in the process, so that its pages are
    /// new.
    ColdBurst,
    /// The same burst once more.
    WarmBurst,
    /// Creating one and ending it, repeatedly.
    CreateEnd,
    /// A switch into a coroutine or out of it.
    Switch,
}

impl Priced {
    /// All operations, in the order in which a process times them: the cold burst must be first.
    pub const ALL: [Priced; 4] = [
        Priced::ColdBurst,
        Priced::WarmBurst,
        Priced::CreateEnd,
        Priced::Switch,
    ];

    /// Its word in the record.
    pub fn name(self) -> &'static str {
        match self {
            Priced::ColdBurst => "cold-burst",
            Priced::WarmBurst => "warm-burst",
            Priced::CreateEnd => "create-end",
            Priced::Switch => "switch",
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Priced::ColdBurst => "create and end, a burst of new stacks",
            Priced::WarmBurst => "create and end, a burst of used stacks",
            Priced::CreateEnd => "create and end, one at a time",
            Priced::Switch => "switch",
        }
    }
}

/// The number of repetitions.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Coroutines per burst.
    pub burst: u64,
    /// Coroutines one at a time.
    pub ends: u64,
    /// Switches.
    pub switches: u64,
}

/// Nanoseconds of each, in the order of [`Priced::ALL`].
///
/// # Errors
/// If there are no such stacks, or too few.
pub fn measure(kind: StackKind, stack_bytes: usize, times: Times) -> anyhow::Result<[f64; 4]> {
    match kind {
        StackKind::Own => measure_on(&Own, stack_bytes, times),
        StackKind::Neap => measure_on(&Shared::find()?, stack_bytes, times),
    }
}

fn measure_on<S: Source>(source: &S, bytes: usize, times: Times) -> anyhow::Result<[f64; 4]> {
    Ok([
        burst(source, bytes, times.burst)?,
        burst(source, bytes, times.burst)?,
        one_by_one(source, bytes, times.ends)?,
        switches(source, bytes, times.switches)?,
    ])
}

fn per(start: Instant, count: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / count.max(1) as f64
}

fn burst<S: Source>(source: &S, bytes: usize, count: u64) -> anyhow::Result<f64> {
    let mut crowd = Vec::with_capacity(count as usize);
    let start = Instant::now();
    for _ in 0..count {
        crowd.push(parked(source.stack(bytes)?));
    }
    for coroutine in &mut crowd {
        coroutine.resume(());
    }
    crowd.clear();
    Ok(per(start, count))
}

fn one_by_one<S: Source>(source: &S, bytes: usize, count: u64) -> anyhow::Result<f64> {
    let start = Instant::now();
    for _ in 0..count {
        let mut coroutine = parked(source.stack(bytes)?);
        coroutine.resume(());
    }
    Ok(per(start, count))
}

/// A resume and a suspend are two switches.
fn switches<S: Source>(source: &S, bytes: usize, count: u64) -> anyhow::Result<f64> {
    let stack = source.stack(bytes)?;
    let mut coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
        for _ in 0..count / 2 {
            yielder.suspend(());
        }
    });
    let (start, mut resumed) = (Instant::now(), 0);
    while !coroutine.done() {
        coroutine.resume(());
        resumed += 1;
    }
    let ns = per(start, count);
    // The last resume reaches the end instead of a suspend.
    ensure!(resumed == count / 2 + 1, "resumed {resumed} times");
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_price_is_above_nothing() {
        let few = Times {
            burst: 20,
            ends: 20,
            switches: 200,
        };
        let prices = measure(StackKind::Own, 64 << 10, few).unwrap();
        assert!(prices.iter().all(|ns| *ns > 0.0), "{prices:?}");
        assert!(measure(StackKind::Neap, 64 << 10, few).is_err());
    }
}
