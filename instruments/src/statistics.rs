//! Statistics at the process's end, for `NEAP_STATS`.

use crate::{attach, survey};
use bytemuck::Zeroable;
use core::ffi::CStr;
use core::fmt::{self, Write};
use neap_heap::base::sync::{AtomicU8, Ordering, UnsafeCell};
use neap_heap::cache::heap::HEAP;
use neap_heap::init::{self, Frontend};
use neap_heap::os::areas;
use neap_heap::os::file;
use neap_heap::os::file::FileIdentity;
use neap_heap::os::lock_order;
use neap_heap::os::process;
use neap_heap::os::process::{Lossy, warn};
use neap_heap::reclaim::thread as purge;
use neap_shared::stats::{Json, Snapshot, Text};

/// What was asked for.
struct Request {
    /// Written once by the constructor, while the process has one thread; read when it ends.
    place: UnsafeCell<Place>,
}

/// Where the page goes.
struct Place {
    /// A path that ends in 0, empty for standard error.
    path: [u8; PATH_BYTES],
    /// What standard error was at the start: a program may have closed it and opened something else
    /// there.
    standard_error: Option<FileIdentity>,
    /// A descriptor of ours on the same file: many programs close theirs before they end.
    /// Meaningless until `standard_error` is known.
    ours: i32,
}

const PATH_BYTES: usize = 4096;

// SAFETY: `place` is written by the constructor only.
unsafe impl Sync for Request {}

const OFF: u8 = 0;
const TEXT: u8 = 1;
const JSON: u8 = 2;

/// [`OFF`], [`TEXT`] or [`JSON`]. Kept apart, because a fork's child reads it when it ends.
#[unsafe(link_section = "neap_fork")]
static FORM: AtomicU8 = AtomicU8::new(OFF);

/// All zero at first, so that it takes no room in the library's file.
#[unsafe(link_section = ".bss.neap_tables")]
static REQUEST: Request = Request {
    place: UnsafeCell::new(Place {
        path: [0; PATH_BYTES],
        standard_error: None,
        ours: 0,
    }),
};

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

/// Sets the form of the page: `off`, `text` or `json`.
///
/// # Safety
/// - The process has one thread.
pub(crate) unsafe fn choose(word: &str) {
    let form = match word {
        "text" => TEXT,
        "json" => JSON,
        _ => OFF,
    };
    FORM.store(form, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    let place = unsafe { &mut *REQUEST.place.get() };
    if form != OFF && place.standard_error.is_none() {
        place.standard_error = file::file_identity(2);
        place.ours = file::duplicate(2).unwrap_or(2);
    }
}

/// Sets where the page goes.
///
/// # Safety
/// - The process has one thread.
pub(crate) unsafe fn keep_path(path: &[u8]) {
    if path.len() >= PATH_BYTES {
        return warn(format_args!(
            "NEAP_STATS_FILE is ignored: longer than {} bytes",
            PATH_BYTES - 1
        ));
    }
    // SAFETY: the caller's promise.
    let place = unsafe { &mut *REQUEST.place.get() };
    place.path[..path.len()].copy_from_slice(path);
    place.path[path.len()] = 0;
}

/// The process ends: writes the statistics that were asked for.
extern "C" fn at_end() {
    lock_order::forget_held();
    if FORM.load(Ordering::Relaxed) != OFF {
        let form = FORM.swap(OFF, Ordering::Relaxed);
        write_statistics(form);
    }
    attach::finish();
}

/// The process ends without its exit handlers (`_exit`, as shells do): writes the statistics all
/// the same, if that is safe. It is not in a vfork's child, nor in a signal handler that
/// interrupted the heap, whose locks this thread then holds.
pub fn ends_at_once() {
    let form = FORM.load(Ordering::Relaxed);
    let wanted = form != OFF || attach::is_awaited();
    if wanted && purge::may_be_own_process() && HEAP.is_quiet() {
        // A depot's lock may be held. Nothing below takes one.
        lock_order::forget_held();
        areas::on_stack(|| at_end());
    }
}

/// What the page is made of and in. Not on the stack, because the caller's may be a coroutine's.
#[repr(C)]
struct Desk {
    figures: Snapshot,
    page: Page,
}

// SAFETY: zeros are figures, and an empty page.
unsafe impl Zeroable for Desk {}

fn write_statistics(form: u8) {
    let written = areas::with(|desk| write_at(desk, form));
    if written.is_none() {
        warn(format_args!("no memory to write the statistics"));
    }
}

fn write_at(Desk { figures, page }: &mut Desk, form: u8) {
    survey::snapshot_into(figures);
    let name = Lossy(process::program_name());
    let id = process::process_id();
    // Such a process may have the library's heap as well, which writes a page of its own.
    let heap = match init::frontend() {
        Frontend::C => "",
        Frontend::Rust => ", the heap of its Rust code",
    };
    // A page that does not fit is cut; PAGE_BYTES holds every class.
    let _ = if form == JSON {
        writeln!(
            page,
            "{{\"program\":\"{}\",\"pid\":{id},{}}}",
            Escaped(name.0),
            Json(figures)
        )
    } else {
        writeln!(
            page,
            "neap: {name} (process {id}) at its end{heap}\n{}",
            Text(figures)
        )
    };
    // SAFETY: written by the constructor only, long ago.
    write_page(unsafe { &*REQUEST.place.get() }, &page.bytes[..page.len]);
}

fn write_page(place: &Place, page: &[u8]) {
    let path = CStr::from_bytes_until_nul(&place.path).unwrap_or(c"");
    if path.is_empty() {
        // Only where the number still means what it meant.
        let meant = |descriptor: &i32| file::file_identity(*descriptor) == place.standard_error;
        if place.standard_error.is_some()
            && let Some(descriptor) = [place.ours, 2].into_iter().find(meant)
        {
            file::write_all(descriptor, page);
        }
        return;
    }
    let is_written = file::open_append(path).is_some_and(|file| {
        let is_written = file::write_all(file, page);
        file::close(file);
        is_written
    });
    if !is_written {
        warn(format_args!(
            "cannot write the statistics to {}",
            Lossy(path.to_bytes())
        ));
    }
}

const PAGE_BYTES: usize = 32 << 10;

#[repr(C)]
struct Page {
    bytes: [u8; PAGE_BYTES],
    len: usize,
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Bytes that are most likely text, inside a JSON string.
struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '"' | '\\' => write!(out, "\\{letter}")?,
                    control if control.is_control() => write!(out, "\\u{:04x}", control as u32)?,
                    plain => out.write_char(plain)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn names_are_escaped_in_json() {
        assert_eq!(format!("{}", Escaped(b"a\"b\\c\n")), "a\\\"b\\\\c\\u000a");
    }
}
