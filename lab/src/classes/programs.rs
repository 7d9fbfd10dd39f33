//! Records the sizes that real programs request: those of the cases in `lab/sizes`. Each runs under
//! Neap in the counting mode, and leaves a table of sizes on its status page.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use neap_shared::status_page::{self, SizeFigure};

use super::tables::Step;
use crate::cases::case::{Case, Home, Work};
use crate::{command, status};

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
    let mut subject = home.command(&case.subject, Some(&work))?;
    subject.env("LD_PRELOAD", library).env("NEAP_COUNT", "1");
    // A monitored process writes its table once more at its end, even if no monitor listens.
    subject.env("NEAP_MONITOR", "/no/monitor").envs(&case.env);
    let mut child = started(&mut subject)?;
    let status_page = status_page_of(&mut child);
    if !case.driver.is_empty() {
        let mut driver = home.command(&case.driver, Some(&work))?;
        let status = command::wait(&mut started(&mut driver)?, command::LONGEST);
        if !status.as_ref().is_ok_and(|status| status.success()) {
            child.kill()?;
        }
    }
    let status = command::wait(&mut child, command::LONGEST)?;
    ensure!(status.success(), "{} ended with {status}", case.title);
    let steps = steps(&status_page?)?;
    ensure!(!steps.is_empty(), "it left an empty table of sizes");
    Ok(steps)
}

fn started(command: &mut Command) -> anyhow::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::null()).spawn();
    child.with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))
}

/// The status page of a program that was just started, held open beyond its end.
fn status_page_of(child: &mut Child) -> anyhow::Result<File> {
    let start = Instant::now();
    let pid = child.id().to_string();
    loop {
        // The status page may be found a moment before its head is written.
        let found = status::open(&pid, status_page::NAME);
        let told = found.as_ref().map(is_status_page);
        if let (Some(file), Some(Ok(()))) = (found, &told) {
            return Ok(file);
        }
        if let Some(status) = child.try_wait()? {
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
    for index in 0..status_page::SIZES {
        let at = status_page::SIZES_AT + index * size_of::<SizeFigure>();
        let SizeFigure { count, bytes } = status::read(status_page, at)?;
        if count > 0 {
            let up_to = match index + 1 == status_page::SIZES {
                true => usize::MAX,
                // Entry 0 counts requests of zero bytes, which get a block of 8.
                false => index.max(1) * status_page::SIZE_STEP,
            };
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
