//! The processes under Neap.

use crate::attach::{Under, kernel, of_whom};
use crate::failure::Failure;
use crate::failure::shown;
use neap_shared::stats::Bytes;
use serde::Serialize;

/// A listed process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its PID.
    pub pid: i32,
    /// Its name.
    pub program: String,
    /// Resident bytes of the whole process.
    #[serde(rename = "process_resident")]
    pub resident: u64,
    /// Swapped bytes of the whole process.
    #[serde(rename = "process_swapped")]
    pub swapped: u64,
    /// Bytes committed by Neap, by the page heap's own figures.
    pub committed: u64,
    /// Free pages that may be resident.
    pub free_dirty: u64,
    /// Bytes given back to the kernel so far.
    pub purged: u64,
}

/// The list's columns.
pub const HEADS: [&str; 6] = [
    "PID",
    "resident",
    "committed",
    "free",
    "purged",
    "  program",
];

impl Entry {
    /// The text of each column.
    pub fn cells(&self) -> [String; 6] {
        let figures = [self.resident, self.committed, self.free_dirty, self.purged];
        let [resident, committed, free, purged] = figures.map(|bytes| Bytes(bytes).to_string());
        let program = format!("  {}", shown(&self.program));
        [
            self.pid.to_string(),
            resident,
            committed,
            free,
            purged,
            program,
        ]
    }
}

/// The order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Most memory first.
    #[default]
    Resident,
    /// Most free pages first.
    FreeDirty,
    /// By name.
    Name,
    /// By PID.
    Pid,
}

impl Order {
    const ALL: [(Self, &str); 4] = [
        (Self::Resident, "resident"),
        (Self::FreeDirty, "free"),
        (Self::Name, "name"),
        (Self::Pid, "PID"),
    ];

    /// The order that a key press chooses after this one.
    pub fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()].0
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn sort(self, entries: &mut [Entry]) {
        match self {
            Order::Resident => entries.sort_by_key(|entry| std::cmp::Reverse(entry.resident)),
            Order::FreeDirty => entries.sort_by_key(|entry| std::cmp::Reverse(entry.free_dirty)),
            Order::Name => entries.sort_by(|one, other| one.program.cmp(&other.program)),
            Order::Pid => entries.sort_by_key(|entry| entry.pid),
        }
    }
}

/// What stands in place of an empty list.
pub fn none() -> String {
    let whom = of_whom();
    format!("no process{whom} runs under Neap: start one with neap run")
}

/// All processes of the user, or of all users for root.
///
/// # Errors
///
/// There is no /proc.
pub fn entries(order: Order) -> Result<Vec<Entry>, Failure> {
    let mut entries: Vec<Entry> = Under::all()?.iter().filter_map(entry).collect();
    order.sort(&mut entries);
    Ok(entries)
}

fn entry(under: &Under) -> Option<Entry> {
    let whole = kernel::whole(under.status_page.process()?).ok()?;
    let coarse = under.status_page.coarse().unwrap_or_default();
    Some(Entry {
        pid: under.target.pid,
        program: under.target.name.clone(),
        resident: whole.process_rss,
        swapped: whole.process_swap,
        committed: coarse.committed,
        free_dirty: coarse.free_dirty,
        purged: coarse.purged_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_reached_and_sorts() {
        let entry = |pid, program: &str, resident, free_dirty| Entry {
            pid,
            program: program.into(),
            resident,
            swapped: 0,
            committed: 0,
            free_dirty,
            purged: 0,
        };
        let mut entries = vec![
            entry(3, "b", 10, 7),
            entry(1, "c", 30, 5),
            entry(2, "a", 20, 6),
        ];
        let mut order = Order::default();
        let mut firsts = Vec::new();
        for _ in 0..4 {
            order.sort(&mut entries);
            firsts.push((order.word(), entries[0].pid));
            order = order.next();
        }
        assert_eq!(
            firsts,
            [("resident", 1), ("free", 3), ("name", 2), ("PID", 1)]
        );
        assert_eq!(order, Order::default());
    }
}
