//! The heaps to measure: the lab's worker under each peer, and `neap-lab-rust`, whose allocator is
//! the crate. Their usable bytes, distances and boxes.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::engine::campaign::Named;
use crate::engine::record::Figure;
use crate::peers::locate::{Ready, own_folder};
use crate::{command, run};

/// The name of Neap as a Rust program's own allocator.
pub const RUST: &str = "neap-rust";

/// A heap to measure.
pub enum Engine {
    /// A preloaded library.
    Peer(Ready),
    /// A program with Neap built in.
    Rust(PathBuf),
}

impl Named for Engine {
    fn name(&self) -> String {
        Engine::name(self).to_string()
    }
}

impl Engine {
    /// The Rust program beside this one.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn rust() -> anyhow::Result<Engine> {
        let program = own_folder()?.join("neap-lab-rust");
        ensure!(
            program.is_file(),
            "no neap-lab-rust beside neap-lab (cargo build --release -p neap-lab builds both)"
        );
        Ok(Engine::Rust(program))
    }

    /// Its name in the tables.
    pub fn name(&self) -> &'static str {
        match self {
            Engine::Peer(peer) => peer.name,
            Engine::Rust(_) => RUST,
        }
    }

    /// Its answer to `arguments`.
    ///
    /// # Errors
    /// If it fails, or a peer's worker used another malloc.
    pub fn ask(&self, arguments: &[String]) -> anyhow::Result<String> {
        match self {
            Engine::Peer(peer) => run::ask(arguments, peer),
            Engine::Rust(program) => command::output(Command::new(program).args(arguments))
                .context("the Rust program with Neap inside failed"),
        }
    }
}

/// The usable bytes of every size from 1 to `largest`.
///
/// # Errors
/// If the engine fails or reports too little.
pub fn usable(engine: &Engine, largest: usize) -> anyhow::Result<Vec<usize>> {
    let report = engine.ask(&["usable".into(), largest.to_string()])?;
    sizes(&report, largest)
}

/// Expands the lines `usable=SIZE BYTES`: sizes between two lines have the bytes of the first.
fn sizes(report: &str, largest: usize) -> anyhow::Result<Vec<usize>> {
    let mut usable = Vec::with_capacity(largest);
    let mut last = None;
    for line in report
        .lines()
        .filter_map(|line| line.strip_prefix("usable="))
    {
        let (size, bytes) = line.split_once(' ').context("no bytes")?;
        let size: usize = size.parse()?;
        let first = last.map_or(1, |_| usable.len() + 2);
        let in_order = match last {
            None => size == first,
            Some(_) => (first..=largest).contains(&size),
        };
        ensure!(in_order, "sizes out of order: {line}");
        usable.resize(size - 1, last.unwrap_or(0));
        last = Some(bytes.parse()?);
    }
    usable.resize(largest, last.context("no usable bytes were told")?);
    Ok(usable)
}

/// The distance in bytes between neighbouring blocks of each size, among `count` live ones.
///
/// # Errors
/// If the engine fails or reports too little.
pub fn distances(engine: &Engine, sizes: &[usize], count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut arguments = vec!["distances".to_string(), count.to_string()];
    arguments.extend(sizes.iter().map(usize::to_string));
    let report = engine.ask(&arguments)?;
    let figure = |size: &usize| {
        let bytes = run::needed(&report, &format!("distance_{size}"))?;
        Ok(Figure::block_bytes(of_size(*size), bytes.parse()?))
    };
    sizes.iter().map(figure).collect()
}

/// The name of the figure for a size.
pub fn of_size(size: usize) -> String {
    format!("{size} B")
}

/// The cost of boxes of 24 bytes.
///
/// # Errors
/// If the engine fails or reports too little.
pub fn boxed(engine: &Engine, count: usize, readings: usize) -> anyhow::Result<Vec<Figure>> {
    let arguments = ["boxed".into(), count.to_string(), readings.to_string()];
    let report = engine.ask(&arguments)?;
    let number = |key| anyhow::Ok(run::needed(&report, key)?.parse::<f64>()?);
    Ok(vec![
        Figure::block_bytes("resident bytes a value", number("bytes_per_value")?),
        Figure::nanoseconds("made and dropped at once", number("ns_per_pair")?),
        Figure::nanoseconds("in a batch of a thousand", number("ns_in_batch")?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_the_same_is_filled_in() {
        let report = "heap=/x\nusable=1 8\nusable=9 16\nusable=17 24\n";
        let sizes = sizes(report, 20).unwrap();
        assert_eq!(sizes[..9], [8, 8, 8, 8, 8, 8, 8, 8, 16]);
        assert_eq!(sizes[16..], [24, 24, 24, 24]);
    }

    #[test]
    fn nonsense_is_refused() {
        for report in [
            "",
            "usable=0 8\n",
            "usable=9 8\nusable=9 16\n",
            "usable=1 x\n",
        ] {
            assert!(sizes(report, 20).is_err(), "{report:?}");
        }
    }
}
