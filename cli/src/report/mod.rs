//! The report: a page of HTML, or the verdict as JSON, from a recording or a profile.
//!
//! | file | what is in it |
//! |---|---|
//! | `material` | recordings and profiles as they are read |
//! | `subject` | the process it is about |
//! | `verdict/` | what stands out, in prose |
//! | `sites` | places in the program that allocate |
//! | `bands`, `timeline` | the heap over time |
//! | `flame` | the call tree |
//! | `page` | all of it as HTML (`templates/`) |
//! | `date` | a moment as people write it |

mod bands;
mod date;
mod flame;
mod material;
mod page;
mod sites;
mod subject;
mod timeline;
mod verdict;

pub use page::quoted;

use crate::failure::Failure;
use material::Material;
use serde_json::{Value, json};
use std::path::Path;
use subject::Subject;
use verdict::Verdict;

/// What was found, ready to be written.
pub struct Report {
    material: Material,
}

impl Report {
    /// Of a recording or a profile.
    ///
    /// # Errors
    ///
    /// It is neither, or cannot be read.
    pub fn load(file: &Path) -> Result<Self, Failure> {
        let material = material::load(file)?;
        Ok(Self { material })
    }

    /// The process's number; 0: not known.
    pub fn pid(&self) -> u32 {
        Subject::choose(&self.material).pid
    }

    /// The first paragraph and what to do, for a terminal or a pipe.
    pub fn text(&self) -> String {
        let Verdict { opening, findings } = verdict::judge(&Subject::choose(&self.material));
        let mut text = format!("\n{}\n", opening.replace('`', ""));
        for finding in findings {
            text.push_str(&format!(
                "\n- {}\n  {}\n",
                finding.headline.replace('`', ""),
                finding.remedy.replace('`', "")
            ));
        }
        text
    }

    /// The page.
    ///
    /// # Errors
    ///
    /// The kernel gives no random numbers.
    pub fn html(&self) -> Result<String, Failure> {
        let subject = Subject::choose(&self.material);
        page::render(&self.material, &subject, &verdict::judge(&subject))
    }

    /// The verdict for programs.
    pub fn json(&self) -> Value {
        let subject = Subject::choose(&self.material);
        let Verdict { opening, findings } = verdict::judge(&subject);
        let ledger = subject.peak().map(|(_, heap)| {
            let lines = heap.ledger.lines();
            let mut lines: serde_json::Map<String, Value> = lines
                .iter()
                .map(|line| (line.name.to_owned(), json!(line.bytes)))
                .collect();
            lines.insert("resident".to_owned(), json!(heap.ledger.resident));
            lines
        });
        json!({
            "program": subject.program,
            "pid": subject.pid,
            "duration_ms": subject.duration_ms(),
            "peak_resident": subject.peak_rss(),
            "ledger_at_peak": ledger,
            "verdict": opening,
            "findings": findings,
            "notes": self.material.notes,
        })
    }
}
