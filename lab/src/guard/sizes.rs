//! How many of the allocations of a request can be guarded, counted by Neap itself.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use neap_shared::status_page::{self, SizeFigure};

use crate::memory_file;

/// For a process to get its status page.
const LONGEST: Duration = Duration::from_secs(30);

/// The allocations of a process in the counting mode that could have been guarded: those of at most
/// a page. Its status page has their number as of the last answer to `neap stat`.
///
/// # Errors
/// If the process shows no status page, or is not in the counting mode.
pub fn guardable(process: u32, page_bytes: usize) -> anyhow::Result<u64> {
    let start = Instant::now();
    let file = loop {
        match memory_file::open(&process.to_string(), status_page::NAME) {
            Some(file) => break file,
            None if start.elapsed() < LONGEST => std::thread::sleep(Duration::from_millis(10)),
            None => None.context("it shows no status page: it is not under Neap")?,
        }
    };
    memory_file::ensure_words(&file, status_page::MAGIC, status_page::VERSION)?;
    let mut count = 0;
    for index in 0..=page_bytes / status_page::SIZE_STEP {
        let at = status_page::SIZES_AT + index * size_of::<SizeFigure>();
        count += memory_file::read::<SizeFigure>(&file, at)?.count;
    }
    ensure!(count > 0, "it does not count its allocations");
    Ok(count)
}
