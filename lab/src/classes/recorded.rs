//! The sizes that real programs requested: a record of its own, which `neap-lab sizes` writes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::record::{rows_of, text_of};

/// The sizes of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// Its name, without commas.
    pub program: String,
    /// Sorted by size.
    pub steps: Vec<Step>,
}

/// Allocations of similar size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The largest size in bytes, a multiple of 8; the previous step ends at least 8 bytes earlier.
    /// [`usize::MAX`]: all sizes too large for a class.
    pub up_to: usize,
    /// Number of allocations.
    pub count: u64,
    /// Sum of their bytes.
    pub bytes: u64,
}

const COLUMNS: &str = "program,up_to,count,bytes";

/// The record's name for a step of all larger sizes.
const LARGER: &str = "larger";

/// The record's text.
pub fn csv(head: &[(String, String)], programs: &[Sizes]) -> String {
    let of = |sizes: &Sizes| {
        let line = |step: &Step| (sizes.program.clone(), *step);
        sizes.steps.iter().map(line).collect::<Vec<_>>()
    };
    let rows: Vec<(String, Step)> = programs.iter().flat_map(of).collect();
    text_of(head, COLUMNS, &rows, |(program, step)| {
        let up_to = match step.up_to {
            usize::MAX => LARGER.to_string(),
            bytes => bytes.to_string(),
        };
        format!("{program},{up_to},{},{}", step.count, step.bytes)
    })
}

/// Reads what [`csv`] wrote.
///
/// # Errors
/// If it is damaged.
pub fn from_csv(text: &str) -> anyhow::Result<Vec<Sizes>> {
    let (_, rows) = rows_of(text, COLUMNS, parse)?;
    let mut programs: Vec<Sizes> = Vec::new();
    for (program, step) in rows {
        match programs.last_mut() {
            Some(last) if last.program == program => last.steps.push(step),
            _ => programs.push(Sizes {
                program,
                steps: vec![step],
            }),
        }
    }
    Ok(programs)
}

fn parse(line: &str) -> anyhow::Result<(String, Step)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [program, up_to, count, bytes] = fields[..] else {
        bail!("{} fields", fields.len());
    };
    let up_to = match up_to {
        LARGER => usize::MAX,
        bytes => bytes.parse()?,
    };
    ensure!(
        up_to == usize::MAX || up_to.is_multiple_of(8),
        "sizes come in steps of 8 bytes"
    );
    let (count, bytes) = (count.parse()?, bytes.parse()?);
    Ok((
        program.to_string(),
        Step {
            up_to,
            count,
            bytes,
        },
    ))
}

/// The newest record of sizes in `folder`.
///
/// # Errors
/// If there is none, or it is damaged.
pub fn newest(folder: &Path) -> anyhow::Result<(PathBuf, Vec<Sizes>)> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {folder:?}"))?;
    let is_one = |file: &PathBuf| file.to_string_lossy().ends_with("-sizes.csv");
    let files = entries.flatten().map(|entry| entry.path()).filter(is_one);
    let file = files
        .max()
        .with_context(|| format!("no record of sizes in {folder:?}; neap-lab sizes makes one"))?;
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file:?}"))?;
    let programs = from_csv(&text).with_context(|| format!("{file:?} is damaged"))?;
    Ok((file, programs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<Sizes> {
        let step = |up_to, count, bytes| Step {
            up_to,
            count,
            bytes,
        };
        vec![
            Sizes {
                program: "a".into(),
                steps: vec![step(8, 3, 20), step(usize::MAX, 1, 99_999)],
            },
            Sizes {
                program: "b".into(),
                steps: vec![step(24, 1, 17)],
            },
        ]
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let text = csv(&[("date".into(), "today".into())], &example());
        assert_eq!(from_csv(&text).unwrap(), example());
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let text = csv(&[], &example());
        for (good, bad) in [("a,8,", "a,9,"), ("b,24,1,17", "b,24,1"), ("99999", "many")] {
            assert!(from_csv(&text.replace(good, bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_without_a_record_says_what_makes_one() {
        let error = newest(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err();
        assert!(error.to_string().contains("neap-lab sizes"), "{error}");
    }
}
