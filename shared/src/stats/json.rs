//! The figures for programs.

use super::snapshot::{Counted, Snapshot, USE_NAMES};
use core::fmt::{self, Write};

/// The line of `neap run --stats --format json`: one object, without the braces' outer line feed.
pub struct Json<'a>(pub &'a Snapshot);

impl fmt::Display for Json<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.0;
        for (name, bytes, _) in figures.lines() {
            write!(out, "\"{name}\":{bytes},")?;
        }
        write!(
            out,
            "\"purges\":{},\"questions\":{},\"unanswered\":{},\"refused\":{},\"threads\":{},",
            figures.purges, figures.questions, figures.unanswered, figures.refused, figures.threads
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
