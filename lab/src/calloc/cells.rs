//! The sizes and patterns to compare.

use anyhow::{bail, ensure};

use crate::engine::campaign::Named;
use crate::work::calloc::Touch;

const MIB: u64 = 1 << 20;

/// A block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its name on the command line and in the records.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// All sizes, in the order of the report.
#[rustfmt::skip]
pub const SIZES: &[Size] = &[
    Size { name: "64K", bytes: 64 << 10 },
    Size { name: "256K", bytes: 256 << 10 },
    Size { name: "1M", bytes: MIB },
    Size { name: "10M", bytes: 10 * MIB },
    Size { name: "100M", bytes: 100 * MIB },
    Size { name: "1000M", bytes: 1_000 * MIB },
    STAND_IN,
    LARGEST,
];

/// The largest size, and its replacement on a machine with too little memory.
const LARGEST: Size = Size {
    name: "4G",
    bytes: 4_096 * MIB,
};
const STAND_IN: Size = Size {
    name: "2000M",
    bytes: 2_000 * MIB,
};

/// The largest size of a quick run.
const LARGEST_QUICK: u64 = 10 * MIB;

/// The size with that name.
pub fn find_size(name: &str) -> Option<&'static Size> {
    SIZES.iter().find(|size| size.name == name)
}

/// The pattern with that name.
pub fn find_touch(name: &str) -> Option<Touch> {
    Touch::ALL.into_iter().find(|touch| touch.name() == name)
}

/// The sizes to use if none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All that fit into the machine's memory.
    Full,
    /// The small ones.
    Quick,
}

/// What to run, and what is left out for lack of memory.
#[derive(Debug, PartialEq)]
pub struct Chosen {
    /// The rows.
    pub sizes: Vec<&'static Size>,
    /// The patterns.
    pub touches: Vec<Touch>,
    /// Why sizes were left out.
    pub left_out: Vec<String>,
}

/// The sizes and patterns named in `only`. If it names none of a kind, all of that kind, as far as
/// `available` bytes of memory allow.
///
/// # Errors
/// If a name is neither, or nothing is left.
pub fn choose(only: &[String], reach: Reach, available: u64) -> anyhow::Result<Chosen> {
    let unknown = only
        .iter()
        .find(|n| find_size(n).is_none() && find_touch(n).is_none());
    if let Some(name) = unknown {
        bail!(
            "no size and no pattern {name:?}; there are {}",
            known().join(", ")
        );
    }
    let named = |name: &str| only.iter().any(|n| n == name);
    let mut touches = Touch::ALL.to_vec();
    if only.iter().any(|n| find_touch(n).is_some()) {
        touches.retain(|touch| named(touch.name()));
    }
    let asked: Vec<&'static Size> = SIZES.iter().filter(|size| named(size.name)).collect();
    let (sizes, left_out) = match asked.is_empty() {
        true => default_sizes(reach, available),
        false => allowed(&asked, available),
    };
    ensure!(!sizes.is_empty(), "nothing to run: {}", left_out.join(", "));
    Ok(Chosen {
        sizes,
        touches,
        left_out,
    })
}

fn known() -> Vec<&'static str> {
    let sizes = SIZES.iter().map(|size| size.name);
    sizes.chain(Touch::ALL.map(Touch::name)).collect()
}

/// The replacement is used on a machine without memory for the largest size.
fn default_sizes(reach: Reach, available: u64) -> (Vec<&'static Size>, Vec<String>) {
    let unwanted = if needed(&LARGEST) <= available {
        &STAND_IN
    } else {
        &LARGEST
    };
    let wanted = |size: &&Size| match reach {
        Reach::Full => *size != unwanted,
        Reach::Quick => size.bytes <= LARGEST_QUICK,
    };
    let sizes: Vec<&'static Size> = SIZES.iter().filter(wanted).collect();
    allowed(&sizes, available)
}

fn allowed(sizes: &[&'static Size], available: u64) -> (Vec<&'static Size>, Vec<String>) {
    let (fit, large): (Vec<_>, Vec<_>) = sizes.iter().partition(|size| needed(size) <= available);
    let reason = |size: &&Size| {
        let (needed, available) = (needed(size) / MIB, available / MIB);
        format!(
            "{}: needs {needed} MiB of memory, {available} MiB are available",
            size.name
        )
    };
    (fit, large.iter().map(reason).collect())
}

/// Memory for a size: twice its bytes, because an allocator may keep a freed block while it
/// allocates the next, and a margin.
fn needed(size: &Size) -> u64 {
    2 * size.bytes + 256 * MIB
}

/// One cell: the work of one worker process under one allocator.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The size of a block.
    pub size: &'static Size,
    /// The pattern of writes to the block.
    pub touch: Touch,
}

impl Cell {
    /// Every cell of the chosen sizes and patterns. Small sizes come first, so that the slowest
    /// cells are missing if the time is up.
    pub fn all(chosen: &Chosen) -> Vec<Cell> {
        let of = |size: &&'static Size| {
            let size = *size;
            chosen
                .touches
                .iter()
                .map(move |&touch| Cell { size, touch })
                .collect::<Vec<_>>()
        };
        chosen.sizes.iter().flat_map(of).collect()
    }
}

impl Named for Cell {
    fn name(&self) -> String {
        format!("{} {}", self.size.name, self.touch.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(chosen: &Chosen) -> Vec<&'static str> {
        chosen.sizes.iter().map(|size| size.name).collect()
    }

    #[test]
    fn memory_decides_which_size_is_the_largest() {
        let rich = choose(&[], Reach::Full, 64 << 30).unwrap();
        assert_eq!(
            names(&rich),
            ["64K", "256K", "1M", "10M", "100M", "1000M", "4G"]
        );
        let poor = choose(&[], Reach::Full, 6 << 30).unwrap();
        assert_eq!(names(&poor).last(), Some(&"2000M"));
        assert!(poor.left_out.is_empty() && poor.touches == Touch::ALL);
        let poorest = choose(&[], Reach::Full, 1 << 30).unwrap();
        assert_eq!(names(&poorest).last(), Some(&"100M"));
        assert_eq!(poorest.left_out.len(), 2, "{:?}", poorest.left_out);
        assert!(choose(&["4G".into()], Reach::Full, 1 << 30).is_err());
    }

    #[test]
    fn names_choose_sizes_and_patterns_apart() {
        let only = ["10M".to_string(), "all".into(), "first".into()];
        let chosen = choose(&only, Reach::Quick, 64 << 30).unwrap();
        assert_eq!(names(&chosen), ["10M"]);
        assert_eq!(chosen.touches, [Touch::First, Touch::All]);
        assert_eq!(Cell::all(&chosen).len(), 2);
        assert!(choose(&["11M".into()], Reach::Full, 64 << 30).is_err());
        assert_eq!(
            names(&choose(&[], Reach::Quick, 64 << 30).unwrap()).last(),
            Some(&"10M")
        );
    }
}
