//! Memory errors that guarded samples found. They are worse than any number of bytes, so they come
//! first.

use super::finding::Finding;
use crate::report::errors::Errors;
use crate::report::subject::Subject;
use neap_shared::stats::ending;

/// See [`Finding::kind`].
pub const MEMORY_ERROR: &str = "memory_error";

/// One finding for each process with errors.
pub fn findings(subject: &Subject) -> Vec<Finding> {
    subject.errors.iter().map(finding).collect()
}

fn finding(errors: &Errors) -> Finding {
    let Errors { pid, count, .. } = *errors;
    let name = match errors.program.as_str() {
        "" => format!("process {pid}"),
        program => format!("`{}` (process {pid})", program.replace('`', "'")),
    };
    let plural = ending(count, "s");
    let remedy = match errors.reports.as_str() {
        "" => {
            "The reports went to standard error, or to the file that `NEAP_GUARD_FILE` named. To \
             have them here, run `neap run --record --guard --guard-file=FILE -- PROGRAM`, with \
             the value of `--guard` that found them."
        }
        _ => "In each stack trace of the report, look at the first call in the program's own code.",
    };
    Finding {
        kind: MEMORY_ERROR,
        bytes: 0,
        share: 0.0,
        of: "",
        site: None,
        headline: format!("Guarded samples found {count} memory error{plural} in {name}."),
        detail: "The program accessed memory outside a block or after its free, or freed a block \
                 wrongly. Few allocations are guarded, so the error may be frequent."
            .to_owned(),
        remedy: remedy.to_owned(),
        text: Some(errors.reports.clone()).filter(|text| !text.is_empty()),
    }
}
