//! Guarded samples of the members: the load runs with them, and each member must have had some.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::member::Member;
use crate::command;

/// The variable that switches them on, and the mean time between two of a thread: the default of
/// `neap run --guard`.
pub const VARIABLE: (&str, &str) = ("NEAP_GUARD", "20ms");

/// Asks every member for its guarded blocks with the command `neap`, and notes them there.
///
/// # Errors
/// If a member does not answer, had none, or found a memory error.
pub fn count(neap: &Path, members: &mut [Member]) -> anyhow::Result<()> {
    for member in members {
        let mut stat = Command::new(neap);
        stat.args(["stat", "--timeout", "60s", "--format", "json"]);
        let told = command::output(stat.arg(member.id().to_string()));
        let blocks = told.and_then(|told| blocks(&told));
        let blocks = blocks.with_context(|| format!("{}: guarded samples", member.name))?;
        member.guarded = Some(blocks);
    }
    Ok(())
}

/// The guarded blocks so far, of what `neap stat` says.
fn blocks(told: &str) -> anyhow::Result<u64> {
    let told: Value = serde_json::from_str(told).context("no JSON")?;
    let number = |name| told["guards"][name].as_u64().context("no counts");
    let (blocks, errors) = (number("blocks")?, number("errors")?);
    ensure!(errors == 0, "{errors} memory errors");
    ensure!(blocks > 0, "no block was guarded");
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_without_guarded_blocks_or_with_an_error_fails() {
        let told = |counts| blocks(counts).map_err(|error| error.to_string());
        assert_eq!(told(r#"{"guards": {"blocks": 7, "errors": 0}}"#), Ok(7));
        for (counts, reason) in [
            (
                r#"{"guards": {"blocks": 0, "errors": 0}}"#,
                "no block was guarded",
            ),
            (
                r#"{"guards": {"blocks": 7, "errors": 2}}"#,
                "2 memory errors",
            ),
            ("{}", "no counts"),
            ("", "no JSON"),
        ] {
            assert_eq!(told(counts), Err(reason.to_string()));
        }
    }
}
