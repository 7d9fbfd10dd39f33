//! Other size classes from the start, for `NEAP_CLASSES`.

use super::start::{Frontend, frontend};
use crate::cache::heap::HEAP;
use crate::os::abort::{Lossy, warn};
use crate::os::file;
use crate::pages::Use;
use crate::slab::class_table;
use core::ffi::CStr;
use neap_shared::classes;

const PATH_BYTES: usize = 4096;

/// Puts the classes of a file into force, or says why not. Then those that are built in stay.
///
/// # Safety
/// - The process has one thread.
pub(super) unsafe fn follow(path: &[u8]) {
    let ignored = |why: core::fmt::Arguments<'_>| {
        warn(format_args!(
            "NEAP_CLASSES={} is ignored: {why}",
            Lossy(path)
        ));
    };
    if frontend() != Frontend::C {
        return ignored(format_args!(
            "only libneap.so follows it, no program with Neap built in"
        ));
    }
    if !is_untouched() {
        return ignored(format_args!("blocks were handed out before it was read"));
    }
    let mut text = [0; classes::MOST_BYTES + 1];
    let Some(read) = read(path, &mut text) else {
        return ignored(format_args!("the file cannot be read"));
    };
    match classes::parse(&text[..read]) {
        // SAFETY: no slab and no cache, just seen, and one thread by the caller's promise; it is
        // libneap.so.
        Ok(sizes) => unsafe { class_table::replace(sizes.list()) },
        Err(rejected) => ignored(format_args!("{rejected}")),
    }
}

/// Whether no thread has a cache or a block.
fn is_untouched() -> bool {
    let slabs = HEAP.pages.totals().by_use[Use::Slab as usize - 1].slices;
    HEAP.registry.is_empty() && slabs == 0
}

fn read(path: &[u8], text: &mut [u8]) -> Option<usize> {
    let mut name = [0; PATH_BYTES];
    name[..PATH_BYTES - 1]
        .get_mut(..path.len())?
        .copy_from_slice(path);
    file::read_file(CStr::from_bytes_until_nul(&name).ok()?, text)
}
