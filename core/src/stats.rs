//! Plain data: the figures of the heap at one moment, and their two written forms.

use crate::ledger::{Ledger, Sign};
use crate::page::USES;
use crate::slab::class::CLASSES;
use bytemuck::{Pod, Zeroable};
use core::fmt::{self, Write};

/// The heap at one moment. Bytes unless said otherwise. 64-bit words only: it travels as it stands (see [`crate::board`]).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// When it was taken, in ms of `CLOCK_MONOTONIC`.
    pub at_ms: u64,
    /// What taking it took, in ns.
    pub cost_ns: u64,
    /// Where every byte is.
    pub ledger: Ledger,
    /// Coroutine stacks.
    pub stacks: StackFigures,
    /// Page faults of the process that needed no disk.
    pub minor_faults: u64,
    /// Page faults of the process that did.
    pub major_faults: u64,
    /// Address space reserved.
    pub reserved: u64,
    /// Backed by the kernel's promise.
    pub committed: u64,
    /// Of the whole process, in RAM, as the kernel counts; 0 without /proc.
    pub resident: u64,
    /// The most that was resident of the whole process.
    pub peak_resident: u64,
    /// Usable bytes of blocks in the program's hands.
    pub live: u64,
    /// Free blocks in magazines.
    pub magazines: u64,
    /// What the magazines may hold (the sum of their capacities).
    pub granted: u64,
    /// Free blocks in slabs.
    pub slab_free: u64,
    /// Pages of these that were given back to the kernel, or were not resident to begin with.
    pub slab_purged: u64,
    /// Freed blocks that wait in the checking mode's quarantine.
    pub quarantine: u64,
    /// Free spans.
    pub free_spans: u64,
    /// Pages of free spans that may be resident.
    pub free_dirty: u64,
    /// Neap's own data.
    pub metadata: u64,
    /// Usable bytes of large blocks.
    pub large_bytes: u64,
    /// Large blocks.
    pub large_blocks: u64,
    /// The most bytes of spans that were in use at once.
    pub peak_spans: u64,
    /// Times that pages were given back.
    pub purges: u64,
    /// Bytes given back so far.
    pub purged_bytes: u64,
    /// Written with zeros for callers who asked for zeros in large blocks.
    pub zeroed: u64,
    /// Asked for as zero in large blocks, and known to be zero, so not written.
    pub zero_spared: u64,
    /// Given back to the kernel instead, so that they read as zero; not in `purged_bytes`, which is about free spans.
    pub zero_purged: u64,
    /// Times the kernel was asked which pages of a reused block, or of samples of it, are populated.
    pub questions: u64,
    /// Times it could not be asked, or did not tell all.
    pub unanswered: u64,
    /// Threads that have a cache.
    pub threads: u64,
    /// By [`crate::page::Use`], in its order.
    pub spans: [SpanFigures; USES],
    /// By class, smallest first.
    pub classes: [ClassFigures; CLASSES],
    /// Calls, if they are being counted.
    pub counted: Counted,
}

/// Calls, as the counting mode counts them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// 1 if they are being counted.
    pub known: u64,
    /// Allocations so far.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
    /// Bytes asked for so far.
    pub requested: u64,
}

/// Coroutine stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StackFigures {
    /// In the program's hands.
    pub used: u64,
    /// Ended and kept warm.
    pub parked: u64,
    /// Cells that nobody has and that hold no memory.
    pub free: u64,
    /// Bytes of address space of all of these.
    pub address: u64,
    /// Taken from the page heap so far.
    pub created: u64,
    /// Handed out again so far.
    pub recycled: u64,
    /// Bytes of page tables that they need, estimated.
    pub page_tables: u64,
}

// SAFETY: 64-bit words only, no padding; zero is a value.
unsafe impl Zeroable for Snapshot {}
// SAFETY: as above, and any bits are a value.
unsafe impl Pod for Snapshot {}

/// Spans of one use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanFigures {
    /// How many.
    pub spans: u64,
    /// Their slices (64 KiB each).
    pub slices: u64,
}

/// Blocks of one size class.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassFigures {
    /// Bytes of a block.
    pub bytes: u64,
    /// Slabs.
    pub slabs: u64,
    /// Blocks of these slabs.
    pub blocks: u64,
    /// Of these, free in their slabs.
    pub free: u64,
    /// Of these, free in magazines.
    pub cached: u64,
    /// Refills of the class's magazines by threads that live.
    pub refills: u64,
    /// Flushes of the class's magazines by threads that live.
    pub flushes: u64,
    /// Allocations so far, in the counting mode; else 0.
    pub allocations: u64,
    /// Bytes that these asked for.
    pub requested: u64,
}

impl ClassFigures {
    /// Blocks in the program's hands.
    pub fn live(&self) -> u64 {
        self.blocks
            .saturating_sub(self.free.saturating_add(self.cached))
    }
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot::zeroed()
    }
}

/// Names of the uses, in their order.
pub const USE_NAMES: [&str; USES] = ["slabs", "large blocks", "stacks", "metadata"];

impl Snapshot {
    /// The byte figures with their names (JSON keys) and what they mean, in reading order.
    pub fn lines(&self) -> [(&'static str, u64, &'static str); 18] {
        [
            (
                "live",
                self.live,
                "usable bytes of blocks in the program's hands",
            ),
            ("large", self.large_bytes, "of these, in large blocks"),
            (
                "magazines",
                self.magazines,
                "free blocks in the threads' magazines",
            ),
            ("slab_free", self.slab_free, "free blocks in slabs"),
            (
                "slab_purged",
                self.slab_purged,
                "of these, pages that are kept away",
            ),
            (
                "quarantine",
                self.quarantine,
                "freed blocks held back by --check",
            ),
            ("free_spans", self.free_spans, "free spans"),
            (
                "free_dirty",
                self.free_dirty,
                "of these, pages that may be resident",
            ),
            ("metadata", self.metadata, "Neap's own tables and caches"),
            (
                "committed",
                self.committed,
                "backed by the kernel's promise",
            ),
            ("reserved", self.reserved, "address space"),
            (
                "peak_spans",
                self.peak_spans,
                "the most bytes of spans in use at once",
            ),
            (
                "purged",
                self.purged_bytes,
                "of free memory, given back to the kernel so far",
            ),
            (
                "zeroed",
                self.zeroed,
                "written with zeros for large callocs",
            ),
            (
                "zero_spared",
                self.zero_spared,
                "of large callocs, known to be zero and not written",
            ),
            (
                "zero_purged",
                self.zero_purged,
                "of large callocs, given back to the kernel instead",
            ),
            ("resident", self.resident, "the whole process, in RAM now"),
            (
                "peak_resident",
                self.peak_resident,
                "the whole process, the most so far",
            ),
        ]
    }
}

/// The page of `--stats`.
pub struct Text<'a>(pub &'a Snapshot);

impl fmt::Display for Text<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.0;
        for (name, bytes, meaning) in figures.lines() {
            writeln!(out, "  {name:<14} {:>10}  {meaning}", Bytes(bytes))?;
        }
        ledger(out, &figures.ledger)?;
        calls(out, figures)?;
        writeln!(out, "\n  spans          number     bytes")?;
        for (name, figure) in USE_NAMES.iter().zip(&figures.spans) {
            let bytes = figure.slices << crate::base::units::SLICE_SHIFT;
            writeln!(out, "  {name:<14} {:>6} {:>9}", figure.spans, Bytes(bytes))?;
        }
        classes(out, figures)
    }
}

fn ledger(out: &mut fmt::Formatter<'_>, ledger: &Ledger) -> fmt::Result {
    writeln!(out, "\n  ledger")?;
    for line in ledger.lines().iter().filter(|line| line.bytes > 0) {
        let sign = match line.sign {
            Sign::Plus => '+',
            Sign::Minus => '-',
        };
        let bytes = Bytes(line.bytes);
        writeln!(
            out,
            "  {sign} {:<12} {bytes:>10}  {}",
            line.name, line.meaning
        )?;
    }
    let sum = Bytes(ledger.resident);
    let told = match ledger.asked_kernel {
        0 => "of the heap, at most: the kernel did not tell which pages are in RAM",
        _ => "of the heap, in RAM",
    };
    writeln!(out, "  = {:<12} {sum:>10}  {told}", "resident")
}

fn calls(out: &mut fmt::Formatter<'_>, figures: &Snapshot) -> fmt::Result {
    let refills: u64 = figures.classes.iter().map(|class| class.refills).sum();
    let flushes: u64 = figures.classes.iter().map(|class| class.flushes).sum();
    match figures.counted {
        Counted {
            known: 1..,
            allocations,
            frees,
            requested,
        } => writeln!(
            out,
            "\n  calls          {allocations} allocations of {} in all, {frees} frees",
            Bytes(requested)
        )?,
        _ => writeln!(out, "\n  calls          not counted (--count counts them)")?,
    }
    writeln!(
        out,
        "  questions      {} to the kernel about touched pages; {} times it could not tell",
        figures.questions, figures.unanswered
    )?;
    writeln!(
        out,
        "  magazines      {refills} refills, {flushes} flushes, {} threads now",
        figures.threads
    )
}

fn classes(out: &mut fmt::Formatter<'_>, figures: &Snapshot) -> fmt::Result {
    writeln!(
        out,
        "\n  class   slabs    blocks      live  in magazines  refills  flushes"
    )?;
    for class in figures
        .classes
        .iter()
        .filter(|class| class.blocks > 0 || class.refills > 0)
    {
        writeln!(
            out,
            "  {:>5} {:>7} {:>9} {:>9} {:>13} {:>8} {:>8}",
            class.bytes,
            class.slabs,
            class.blocks,
            class.live(),
            class.cached,
            class.refills,
            class.flushes
        )?;
    }
    Ok(())
}

/// The line of `--stats=json`: one object, without the braces' outer line feed.
pub struct Json<'a>(pub &'a Snapshot);

impl fmt::Display for Json<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.0;
        for (name, bytes, _) in figures.lines() {
            write!(out, "\"{name}\":{bytes},")?;
        }
        write!(
            out,
            "\"purges\":{},\"questions\":{},\"unanswered\":{},\"threads\":{},",
            figures.purges, figures.questions, figures.unanswered, figures.threads
        )?;
        match figures.counted {
            Counted {
                known: 1..,
                allocations,
                frees,
                requested,
            } => write!(
                out,
                "\"calls\":{{\"allocations\":{allocations},\"frees\":{frees},\"requested\":{requested}}},"
            )?,
            _ => out.write_str("\"calls\":null,")?,
        }
        out.write_str("\"ledger\":{")?;
        for line in figures.ledger.lines() {
            write!(out, "\"{}\":{},", line.name, line.bytes)?;
        }
        write!(out, "\"resident\":{}}},", figures.ledger.resident)?;
        out.write_str("\"spans\":{")?;
        for (index, (name, figure)) in USE_NAMES.iter().zip(&figures.spans).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(
                out,
                "{comma}\"{name}\":{{\"spans\":{},\"slices\":{}}}",
                figure.spans, figure.slices
            )?;
        }
        out.write_str("},\"classes\":[")?;
        let used = figures
            .classes
            .iter()
            .filter(|class| class.blocks > 0 || class.refills > 0);
        for (index, class) in used.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(
                out,
                "{comma}{{\"bytes\":{},\"slabs\":{},\"blocks\":{},\"free\":{},\"cached\":{},\"live\":{},\"refills\":{},\"flushes\":{}}}",
                class.bytes,
                class.slabs,
                class.blocks,
                class.free,
                class.cached,
                class.live(),
                class.refills,
                class.flushes
            )?;
        }
        out.write_char(']')
    }
}

/// Bytes for people: `912 B`, `14.2 KiB`, `1.5 GiB`.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return out.pad(Short::new(format_args!("{} B", self.0)).text());
        }
        let step = (self.0.ilog2() as usize / 10 - 1).min(UNITS.len() - 1);
        let tenths = (self.0 as u128 * 10) >> (10 * (step + 1));
        let short = Short::new(format_args!(
            "{}.{} {}",
            tenths / 10,
            tenths % 10,
            UNITS[step]
        ));
        out.pad(short.text())
    }
}

/// A few formatted characters, so that padding applies to them as a whole.
struct Short {
    bytes: [u8; 24],
    len: usize,
}

impl Short {
    fn new(text: fmt::Arguments<'_>) -> Short {
        let mut short = Short {
            bytes: [0; 24],
            len: 0,
        };
        // 24 bytes hold every figure that `Bytes` writes.
        let _ = short.write_fmt(text);
        short
    }

    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("?")
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn bytes_read_well() {
        let text = |bytes| format!("{}", Bytes(bytes));
        assert_eq!(text(0), "0 B");
        assert_eq!(text(1023), "1023 B");
        assert_eq!(text(1536), "1.5 KiB");
        assert_eq!(text(3 << 30), "3.0 GiB");
        assert_eq!(text(u64::MAX), "16383.9 PiB");
        assert_eq!(format!("{:>9}", Bytes(2048)), "  2.0 KiB");
    }
}
