//! The allocators of the case book: the lab's peers, two of them also as threads tune them.

use super::case::Case;
use crate::engine::campaign::{Named, by_name};
use crate::engine::plot::Stroke;
use crate::peers::locate::{self, Places, Ready};

/// An allocator under one setting.
#[derive(Debug)]
pub struct Allocator {
    /// Its name on the command line and in the records.
    pub name: &'static str,
    /// The peer whose library it is.
    peer: &'static str,
    setting: Setting,
}

/// How an allocator is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// As it comes.
    Plain,
    /// With the arenas of a service that was tuned for memory.
    Arenas,
    /// As the case says.
    Tuned,
}

const fn allocator(name: &'static str, peer: &'static str, setting: Setting) -> Allocator {
    Allocator {
        name,
        peer,
        setting,
    }
}

/// Neap's name.
pub const NEAP: &str = "neap";
/// The C library's name.
pub const GLIBC: &str = "glibc";

/// All, in the order of the tables.
pub const ALL: [&Allocator; 9] = [
    &allocator(NEAP, NEAP, Setting::Plain),
    &allocator(GLIBC, GLIBC, Setting::Plain),
    &allocator("glibc-2-arenas", GLIBC, Setting::Arenas),
    &allocator("jemalloc", "jemalloc", Setting::Plain),
    &allocator("jemalloc-tuned", "jemalloc", Setting::Tuned),
    &allocator("mimalloc2", "mimalloc2", Setting::Plain),
    &allocator("mimalloc3", "mimalloc3", Setting::Plain),
    &allocator("tcmalloc", "tcmalloc", Setting::Plain),
    &allocator("snmalloc", "snmalloc", Setting::Plain),
];

by_name!(Allocator);

impl Allocator {
    /// Its library.
    ///
    /// # Errors
    /// If it is not on this machine.
    pub fn locate(&'static self, places: &Places) -> anyhow::Result<Located> {
        let ready = Ready {
            name: self.name,
            ..locate::locate_name(self.peer, places)?
        };
        Ok(Located {
            allocator: self,
            ready,
        })
    }

    /// The line of an allocator in a picture: dashed under another setting.
    pub fn stroke(name: &str) -> Stroke {
        let known = ALL.into_iter().find(|allocator| allocator.name == name);
        let (first, rest) = name.split_once(' ').unwrap_or((name, ""));
        let usual = Stroke::of_peer(first);
        let is_dashed = usual.is_dashed || !rest.is_empty();
        known.map_or(Stroke { is_dashed, ..usual }, |allocator| Stroke {
            is_dashed: allocator.setting != Setting::Plain,
            ..Stroke::of_peer(allocator.peer)
        })
    }
}

/// An allocator whose library was found.
#[derive(Debug)]
pub struct Located {
    allocator: &'static Allocator,
    /// The library.
    pub ready: Ready,
}

impl Named for Located {
    fn name(&self) -> String {
        self.allocator.name.to_string()
    }
}

impl Located {
    /// Whether it is the C library itself, which needs no preload.
    pub fn is_own(&self) -> bool {
        self.allocator.peer == GLIBC
    }

    /// Whether it is Neap.
    pub fn is_neap(&self) -> bool {
        self.allocator.peer == NEAP
    }

    /// The variables that set it; `None` if the case has no such row.
    pub fn variables(&self, case: &Case) -> Option<Vec<(String, String)>> {
        match self.allocator.setting {
            Setting::Plain => Some(vec![]),
            Setting::Arenas => Some(vec![("MALLOC_ARENA_MAX".into(), "2".into())]),
            Setting::Tuned => (!case.tuned.is_empty()).then(|| {
                let pairs = case.tuned.iter();
                pairs.map(|(k, v)| (k.clone(), v.clone())).collect()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_there_twice_and_a_setting_is_a_dashed_line() {
        let places = Places::new(None).unwrap();
        for allocator in &ALL[1..3] {
            let located = allocator.locate(&places).unwrap();
            assert!(located.is_own() && located.ready.name == allocator.name);
        }
        let (plain, arenas) = (
            Allocator::stroke("glibc"),
            Allocator::stroke("glibc-2-arenas"),
        );
        assert_eq!(plain.colour, arenas.colour);
        assert!(!plain.is_dashed && arenas.is_dashed);
    }
}
