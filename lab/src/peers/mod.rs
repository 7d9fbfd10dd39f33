//! The allocators to compare, as `lab/peers/peers.toml` lists them: where each is found, or what it
//! is built from.
//!
//! | file | contents |
//! |---|---|
//! | `locate` | their libraries on this machine |
//! | `nameable` | copies of those whose path the loader would split |
//! | `obtain` | builds those that are not installed |

pub mod locate;
#[path = "../../../ci/nameable.rs"]
mod nameable;
pub mod obtain;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::names::choose;

/// An allocator.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name on the command line and in the records.
    pub name: String,
    /// Its sources, in order of preference.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
    /// When it takes part.
    #[serde(default)]
    joins: Joins,
}

/// When a peer takes part; a peer that is named always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Joins {
    #[default]
    Always,
    Security,
    Named,
}

/// A source of a peer's shared library.
#[derive(Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    System {
        file: String,
        package: String,
    },
    CLibrary,
    Wheel {
        package: String,
        version: String,
        member: String,
    },
    Crate {
        version: String,
        build: Build,
    },
    Neap {
        #[serde(default)]
        settings: BTreeMap<String, String>,
    },
}

/// How the sources inside a crate become a preloadable library.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Build {
    pub package: String,
    #[serde(default)]
    pub crate_flags: String,
    #[serde(default)]
    pub archive: Archive,
    #[serde(default)]
    pub sources: Vec<String>,
    #[serde(default)]
    pub root: Root,
    #[serde(default)]
    pub includes: Vec<String>,
    #[serde(default = "usual_flags")]
    pub flags: Vec<String>,
    #[serde(default)]
    pub emulator_flags: Vec<String>,
}

fn usual_flags() -> Vec<String> {
    ["-lpthread", "-ldl", "-lm"].map(String::from).into()
}

/// How a static library is linked in.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Archive {
    #[default]
    Whole,
    Needed,
    None,
}

/// A directory of a built crate.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Root {
    #[default]
    Package,
    Out,
}

/// The peers that always take part, in the order of the report.
pub fn all() -> impl Iterator<Item = &'static Peer> {
    every().filter(|peer| peer.joins == Joins::Always)
}

/// The peer with that name.
pub fn find(name: &str) -> Option<&'static Peer> {
    every().find(|p| p.name == name)
}

/// The peers named in `only`, or [`all`] if `only` is empty.
///
/// # Errors
/// If a name in `only` is no peer.
pub fn select(only: &[String]) -> anyhow::Result<Vec<&'static Peer>> {
    chosen(only, all().collect())
}

/// The same for the experiment about memory errors, in which more take part.
///
/// # Errors
/// If a name in `only` is no peer.
pub fn select_with_hardened(only: &[String]) -> anyhow::Result<Vec<&'static Peer>> {
    chosen(
        only,
        every().filter(|peer| peer.joins != Joins::Named).collect(),
    )
}

fn chosen(only: &[String], usual: Vec<&'static Peer>) -> anyhow::Result<Vec<&'static Peer>> {
    if only.is_empty() {
        return Ok(usual);
    }
    choose("peer", only, every().collect(), |peer| &peer.name)
}

fn every() -> impl Iterator<Item = &'static Peer> {
    static LIST: LazyLock<List> = LazyLock::new(|| {
        let text = include_str!("../../peers/peers.toml");
        basic_toml::from_str(text).expect("the tests read this list")
    });
    LIST.peer.iter()
}

#[derive(Deserialize)]
struct List {
    peer: Vec<Peer>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_peer_is_refused() {
        assert!(select(&["dlmalloc".into()]).is_err());
        assert_eq!(select(&[]).unwrap().len(), 9);
        let named = select(&["hardened".into(), "neap".into()]).unwrap();
        assert_eq!(
            named.iter().map(|peer| &peer.name).collect::<Vec<_>>(),
            ["neap", "hardened"]
        );
        assert_eq!(select_with_hardened(&[]).unwrap().len(), 11);
    }
}
