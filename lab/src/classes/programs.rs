//! Records the sizes that real programs request: those of the cases in `lab/sizes`. Each runs under
//! Neap in the counting mode, and leaves a table of sizes on its status page.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use neap_shared::status_page::{self, SizeFigure};

use super::tables::Step;
use crate::cases::case::{Case, Home, Work};
use crate::cases::party::{Parties, Party};
use crate::cases::tree;
use crate::status;

/// The folder of the programs, in the order of the record.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sizes");

/// Longest wait for a program's status page.
const LONGEST_START: Duration = Duration::from_secs(10);

/// Runs a program under `library` and returns its sizes.
///
/// # Errors
/// If it is not installed, fails, or has no table of sizes.
pub fn sizes(case: &Case, home: &Home, library: &Path) -> anyhow::Result<Vec<Step>> {
    let work = Work::new()?;
    let variables = [
        ("LD_PRELOAD", library.as_os_str()),
        ("NEAP_COUNT", OsStr::new("1")),
        // A monitored process writes its table once more at its end, even if no monitor listens.
        ("NEAP_MONITOR", OsStr::new("/no/monitor")),
    ];
    // Whatever becomes of the run, nothing of it is left running.
    let _end = tree::EndAll;
    let subject = home.subject(case, &work, &variables)?;
    let mut parties = Parties::start(subject, home.driver(case, &work)?)?;
    let status_page = status_page_of(&mut parties.subject);
    parties.finish()?;
    let steps = steps(&status_page?)?;
    ensure!(!steps.is_empty(), "it left an empty table of sizes");
    Ok(steps)
}

/// The status page of a program that was just started, held open beyond its end.
fn status_page_of(subject: &mut Party) -> anyhow::Result<File> {
    let start = Instant::now();
    let pid = subject.id().to_string();
    loop {
        // The status page may be found a moment before its head is written.
        let found = status::open(&pid, status_page::NAME);
        let told = found.as_ref().map(is_status_page);
        if let (Some(file), Some(Ok(()))) = (found, &told) {
            return Ok(file);
        }
        if let Some(status) = subject.ended() {
            bail!("it ended with {status} before its status page was found");
        }
        if start.elapsed() > LONGEST_START {
            told.context("it shows no status page")??;
        }
    }
}

fn is_status_page(file: &File) -> anyhow::Result<()> {
    status::ensure_words(file, status_page::MAGIC, status_page::VERSION)
}

/// The table of sizes on a status page.
fn steps(status_page: &File) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (index, SizeFigure { count, bytes }) in status::sizes(status_page)?.into_iter().enumerate()
    {
        let up_to = match index + 1 {
            status_page::SIZES => usize::MAX,
            // Entry 0 counts requests of zero bytes, which get a block of 8.
            _ => index.max(1) * status_page::SIZE_STEP,
        };
        if count > 0 {
            steps.push(Step {
                up_to,
                count,
                bytes,
            });
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_status_page_that_was_not_made_by_neap_is_refused_and_a_table_is_read() {
        let path =
            std::env::temp_dir().join(format!("neap-lab-status_page-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(steps(&file).is_err());
        file.set_len(status_page::BYTES as u64).unwrap();
        assert_eq!(steps(&file).unwrap(), []);
        let write = |index: usize, words: [u64; 2]| {
            let at = status_page::SIZES_AT + index * size_of::<SizeFigure>();
            file.write_all_at(bytemuck::bytes_of(&words), at as u64)
                .unwrap();
        };
        write(3, [5, 101]);
        write(status_page::SIZES - 1, [1, 40_000]);
        let step = |up_to, count, bytes| Step {
            up_to,
            count,
            bytes,
        };
        assert_eq!(
            steps(&file).unwrap(),
            [step(24, 5, 101), step(usize::MAX, 1, 40_000)]
        );
    }
}
