//! The sizes that real programs request: a record of its own, which `neap-lab sizes` writes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::tables::{LARGEST, Sizes, Step};
use crate::cases::case::{Case, Home};
use crate::cases::install;
use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, PLAIN};
use crate::engine::record::{Figure, Record, Run};
use crate::engine::settings::{self, Settings};
use crate::engine::table::{Column, section};
use crate::peers::locate::{self, Places};

/// The record's name for a step of all larger sizes.
const LARGER: &str = "larger";
const COUNT: &str = "count up to ";
const BYTES: &str = "bytes up to ";

/// The figures of a program's steps.
pub fn figures(steps: &[Step]) -> Vec<Figure> {
    let of = |step: &Step| {
        let up_to = match step.up_to {
            usize::MAX => LARGER.to_string(),
            bytes => bytes.to_string(),
        };
        [
            Figure::count(format!("{COUNT}{up_to}"), step.count),
            Figure::bytes(format!("{BYTES}{up_to}"), step.bytes as f64),
        ]
    };
    steps.iter().flat_map(of).collect()
}

/// The programs of a record.
///
/// # Errors
/// If a step is damaged.
pub fn programs(record: &Record) -> anyhow::Result<Vec<Sizes>> {
    let program = |run: Run| {
        let counts = run.figures().filter_map(|figure| {
            let up_to = figure.name.strip_prefix(COUNT)?;
            Some(step(&run, up_to, figure.as_number()).with_context(|| figure.name.clone()))
        });
        let steps = counts.collect::<anyhow::Result<_>>()?;
        Ok(Sizes {
            program: run.case().to_string(),
            steps,
        })
    };
    record.runs().map(program).collect()
}

fn step(run: &Run, up_to: &str, count: Option<f64>) -> anyhow::Result<Step> {
    let bytes = run.number(&format!("{BYTES}{up_to}")).context("no bytes")? as u64;
    let count = count.context("no count")? as u64;
    let up_to = match up_to {
        LARGER => usize::MAX,
        bytes => bytes.parse()?,
    };
    let is_step = up_to == usize::MAX || up_to.is_multiple_of(8);
    ensure!(is_step, "sizes come in steps of 8 bytes");
    Ok(Step {
        up_to,
        count,
        bytes,
    })
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
    let read = Record::from_csv(&text).and_then(|record| programs(&record));
    let programs = read.with_context(|| format!("{file:?} is damaged"))?;
    Ok((file, programs))
}

/// The sizes that real programs request.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sizes",
    about: "Record the sizes that real programs request, in Neap's counting mode",
    settings: || {
        vec![
            settings::neap(),
            settings::names("only", "Only these programs"),
        ]
    },
    run: carry_out,
    tables: |record, _| table(record),
    ..PLAIN
};

/// A program, whose name in the record is its title.
struct Program {
    case: Case,
    home: Home,
}

impl Named for Program {
    fn name(&self) -> String {
        self.case.title.clone()
    }
}

impl Program {
    /// Its sizes under `library`. What it needs besides Debian's packages is made first.
    fn sizes(&self, library: &Path) -> anyhow::Result<Vec<Step>> {
        install::install(&self.case, &self.home, &|what| eprintln!("{what}"))?;
        super::programs::sizes(&self.case, &self.home, library)
    }
}

fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let places = Places::new(settings.path("neap"))?;
    let neap = locate::neap(&places)?;
    let all = Case::all(super::programs::FOLDER.as_ref())?;
    let cases = settings.chosen(("only", "program"), all, |case| &case.title)?;
    let program = |case: Case| {
        let home = Home::of(&case, &places)?;
        Ok(Program { case, home })
    };
    let programs: Vec<Program> = cases
        .into_iter()
        .map(program)
        .collect::<anyhow::Result<_>>()?;
    let peers = [neap];
    campaign.head::<&str>(&[], &peers);
    campaign.rounds(1, (&programs, &peers), |program, neap| {
        Ok(figures(&program.sizes(&neap.library)?))
    });
    Ok(Ended::Measured)
}

/// A cell of a program with these steps.
type View = fn(&[Step]) -> Option<String>;

const COLUMNS: [Column<&str, View>; 4] = [
    Column("allocations", |steps| {
        Some(sum(steps, |step| step.count).to_string())
    }),
    Column("up to 32 KiB", |steps| {
        Some(sum(small(steps), |step| step.count).to_string())
    }),
    Column("mean of these", |steps| {
        let (bytes, count) = (
            sum(small(steps), |step| step.bytes),
            sum(small(steps), |step| step.count),
        );
        Some(format!("{:.1} B", bytes as f64 / count.max(1) as f64))
    }),
    Column("most often", |steps| {
        steps.iter().max_by_key(|step| step.count).map(most_often)
    }),
];

fn sum<'a>(steps: impl IntoIterator<Item = &'a Step>, of: fn(&Step) -> u64) -> u64 {
    steps.into_iter().map(of).sum()
}

fn small(steps: &[Step]) -> impl Iterator<Item = &Step> {
    steps.iter().filter(|step| step.up_to <= LARGEST)
}

fn table(record: &Record) -> String {
    let programs = programs(record).unwrap_or_default();
    let named = |sizes: &Sizes| Column(sizes.program.clone(), sizes.steps.clone());
    let rows: Vec<_> = programs.iter().map(named).collect();
    let title = "The sizes that programs request";
    section(title, "program", (&rows, &COLUMNS), |program, column| {
        column.1(&program.1)
    })
}

fn most_often(step: &Step) -> String {
    match step.up_to {
        usize::MAX => "larger".into(),
        bytes => format!("up to {bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Record {
        let step = |up_to, count, bytes| Step {
            up_to,
            count,
            bytes,
        };
        let mut record = Record::default();
        record.push(
            "a",
            "neap",
            0,
            figures(&[step(8, 3, 20), step(usize::MAX, 1, 99_999)]),
        );
        record.push("b", "neap", 0, figures(&[step(24, 1, 17)]));
        record
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let programs = programs(&Record::from_csv(&example().to_csv()).unwrap()).unwrap();
        let names: Vec<&str> = programs
            .iter()
            .map(|sizes| sizes.program.as_str())
            .collect();
        assert_eq!(names, ["a", "b"]);
        let mut again = Record::default();
        for Sizes { program, steps } in &programs {
            again.push(program, "neap", 0, figures(steps));
        }
        assert_eq!(again, example());
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let text = example().to_csv();
        for (good, bad) in [
            ("count up to 8", "count up to 9"),
            ("bytes up to 24", "bytes"),
            ("99999", "many"),
        ] {
            let read = Record::from_csv(&text.replace(good, bad));
            assert!(read.and_then(|record| programs(&record)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_without_a_record_says_what_makes_one() {
        let error = newest(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err();
        assert!(error.to_string().contains("neap-lab sizes"), "{error}");
    }
}
