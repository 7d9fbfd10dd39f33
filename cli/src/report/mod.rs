//! The report: a page of HTML, or the verdict as JSON, from a recording, a profile, or a file of
//! memory errors.
//!
//! | file | contents |
//! |---|---|
//! | `material` | recordings, profiles and memory errors as read |
//! | `subject` | the process that the report is about |
//! | `known` | which figures hold at which moment |
//! | `verdict/` | the findings, in prose |
//! | `sites` | places in the program that allocate |
//! | `timeline` | the heap over time |
//! | `flame` | the call tree |
//! | `page` | all of it as HTML (`templates/`) |

mod date;
mod flame;
mod known;
mod material;
mod page;
mod sites;
mod subject;
mod timeline;
mod verdict;

pub use date::{seconds, utc};
pub use page::{bytes, prose, quoted};

use crate::failure::Failure;
use crate::view::json;
use known::Split;
use material::Material;
use serde_json::{Value, json};
use std::path::Path;
use subject::Subject;
use verdict::Verdict;

/// The findings, ready to be written.
pub struct Report {
    material: Material,
}

impl Report {
    /// The report on a recording, a profile, or a file of memory errors.
    ///
    /// # Errors
    ///
    /// The file is none of these, or cannot be read.
    pub fn load(file: &Path) -> Result<Self, Failure> {
        let material = material::load(file)?;
        Ok(Self { material })
    }

    /// The PID; 0: unknown.
    pub fn pid(&self) -> u32 {
        Subject::choose(&self.material).pid
    }

    /// The first paragraph, the remedies and the notes, for a terminal or a pipe.
    pub fn text(&self) -> String {
        let Verdict { opening, findings } = verdict::judge(&Subject::choose(&self.material));
        let mut text = format!("\n{}\n", opening.replace('`', ""));
        for finding in findings {
            text.push_str(&format!(
                "\n- {}\n  {}\n",
                finding.headline.replace('`', ""),
                finding.remedy.replace('`', "")
            ));
            for line in finding.text.iter().flat_map(|text| text.lines()) {
                text.push_str(&format!("    {line}\n"));
            }
        }
        for note in &self.material.notes {
            text.push_str(&format!("\n{note}\n"));
        }
        text
    }

    /// The page.
    ///
    /// # Errors
    ///
    /// The kernel provides no random numbers.
    pub fn html(&self) -> Result<String, Failure> {
        let subject = Subject::choose(&self.material);
        page::render(&self.material, &subject, &verdict::judge(&subject))
    }

    /// The verdict as JSON.
    pub fn json(&self) -> Value {
        let subject = Subject::choose(&self.material);
        let Verdict { opening, findings } = verdict::judge(&subject);
        let history = subject.history();
        let (peak, end) = (history.peak(), history.end());
        let ledger = |split: Option<Split>| Some(json::lines(&split?.holding()?.heap.ledger));
        json!({
            "program": subject.program,
            "pid": subject.pid,
            "duration_ms": subject.duration_ms(),
            "peak_resident": history.most(),
            "peak": peak.map(|peak| json!({
                "resident": peak.most,
                "t_ms": peak.at_ms,
                "after_ms": peak.after_ms,
                "slabs_and_large_blocks": peak.taken,
                "split": peak.split.map(moment),
            })),
            "ledger_at_peak": ledger(peak.and_then(|peak| peak.split)),
            "end": end.map(moment),
            "ledger_at_end": ledger(end),
            "verdict": opening,
            "findings": findings,
            "notes": self.material.notes,
        })
    }
}

/// The time of the figures, and whether they hold.
fn moment(split: Split) -> Value {
    let (told, known) = (split.told(), split.holding().is_some());
    json!({"known": known, "t_ms": told.at_ms, "resident": told.rss})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Extent, Figures, Profile, Stack};

    /// A place that allocated 20 MB in a session, of which 15 MB stayed.
    fn grown() -> Profile {
        let figures = Figures {
            alloc_objects: 20_000,
            alloc_bytes: 20_000_000,
            live_objects: 15_000,
            live_bytes: 15_000_000,
            live_usable: 30_000_000,
            ..Figures::default()
        };
        Profile {
            program: "planted".to_owned(),
            rate: 1024,
            ended_ms: 2000,
            extent: Extent::Session { shrunk: 1024 },
            stacks: vec![Stack {
                frames: Vec::new(),
                figures,
            }],
            ..Profile::default()
        }
    }

    #[test]
    fn of_a_session_what_is_live_is_called_growth_everywhere() {
        let material = Material {
            profiles: vec![grown()],
            notes: vec!["The note.".to_owned()],
            ..Material::default()
        };
        let report = Report { material };
        let (text, page) = (report.text(), report.html().unwrap());
        assert!(
            text.starts_with(
                "\nplanted: 19.0 MiB in 20,000 objects allocated in 2.0 s (sampled every 1.0 KiB \
                 on average); 14.3 MiB in \
                 15,000 more objects are live than before, at the places that grew (the others \
                 hold 1.0 KiB less)."
            ),
            "{text}"
        );
        assert!(text.ends_with("\nThe note.\n"), "{text}");
        for words in ["were live when", "not been freed", "live at the end"] {
            assert!(!text.contains(words) && !page.contains(words), "{words}");
        }
        for words in [
            "14.3 MiB in 15,000 more objects are live than before",
            "15,000 objects more than were live before",
            ">More live than before</th>",
            "growth of live bytes",
        ] {
            assert!(page.contains(words), "{words}");
        }
    }

    #[test]
    fn growth_of_bytes_alone_has_no_size_of_an_object() {
        let mut profile = grown();
        profile.stacks[0].figures.live_objects = 0;
        let material = Material {
            profiles: vec![profile],
            ..Material::default()
        };
        let text = Report { material }.text();
        assert!(!text.contains("in blocks of"), "{text}");
    }
}
