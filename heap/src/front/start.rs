//! What happens once a process: options are read, fork is prepared for.
//!
//! Allocation does not wait for any of this: the first call may come from the dynamic loader,
//! before any constructor. Options count from the constructor on.

use super::attach::When;
use super::statistics::{self, Lossy};
use super::{attach, classes, fork, profile, purge};
use crate::base::sync::{AtomicBool, Ordering};
use crate::cache::bounds::FastPath;
use crate::cache::heap::{HEAP, Mode};
use crate::control::{self, Value};
use crate::os::Os;
use crate::os::fatal::warn;
use crate::os::linux::{Linux, forbid_pagemap, sandbox};
use crate::os::{scratch, thread};
use crate::page::HugePolicy;
use core::ffi::{CStr, c_char};

#[unsafe(link_section = "neap_fork")]
static DEEPBIND_KEPT: AtomicBool = AtomicBool::new(false);

/// Whether `dlopen` is to leave `RTLD_DEEPBIND` in its flags.
pub fn deepbind_kept() -> bool {
    DEEPBIND_KEPT.load(Ordering::Relaxed)
}

/// Begins the process, once: reads the options, prepares for fork. `libneap.so` calls it from its
/// constructor; in a Rust program the first call that needs a cache does, before `main`.
///
/// # Safety
/// - `envp` is null (then nothing is done) or the process's environment, which no other thread
///   changes meanwhile.
pub unsafe fn begin(envp: *mut *mut c_char) {
    if is_first(envp) {
        // SAFETY: the caller's promise.
        unsafe { begin_first(envp) };
    }
}

/// [`begin`], in a call of the program's: on a stack of its own, for the caller's may be a
/// coroutine's.
///
/// # Safety
/// - As [`begin`].
pub(super) unsafe fn begin_on_the_way(envp: *mut *mut c_char) {
    if is_first(envp) {
        // SAFETY: the caller's promise.
        scratch::on_stack(|| unsafe { begin_first(envp) });
    }
}

/// Whether there is an environment, and this is the first call with one.
fn is_first(envp: *mut *mut c_char) -> bool {
    #[unsafe(link_section = "neap_fork")]
    static DONE: AtomicBool = AtomicBool::new(false);
    !envp.is_null() && !DONE.swap(true, Ordering::Relaxed)
}

/// # Safety
/// - As [`begin`]; for the first caller only.
unsafe fn begin_first(envp: *mut *mut c_char) {
    purge::note_process();
    fork::begin();
    if !thread::is_secure() {
        // SAFETY: the caller's promise.
        unsafe { each_entry(envp, apply) };
    }
    // Last: with `NEAP_ASK=0` not even this.
    sandbox::note_start();
    // Now, while the process has one thread. A filter from before the start may kill for it.
    if sandbox::started_free() {
        thread::prepare_barrier();
    }
    let watched =
        HEAP.mode() != Mode::Plain || profile::is_wanted() || purge::is_wanted_from_start();
    attach::begin(watched);
    profile::begin();
}

/// From now on the kernel is asked nothing new: the program forbids itself system calls, or is
/// about to, and knows nothing of ours. What is left are those that every allocator makes. In a
/// child of `vfork` this is for the parent, too.
pub fn ask_no_more() {
    forbid_pagemap();
    thread::forbid_barrier();
    sandbox::forbid();
    purge::disable();
    // Asked once in a process, at the first large allocation: now, so that it is not later.
    Linux.strict_commit();
}

/// Takes hold of the heap's address space, so that what the program maps before its first
/// allocation cannot keep it from that.
pub fn open() {
    HEAP.pages.open();
}

/// Hears that the limit on the process's address space changed. In a child of `vfork`, which has
/// limits of its own and its parent's memory, nothing is done.
pub fn note_address_limit() {
    if purge::is_noted_process() {
        HEAP.pages.note_address_limit();
    }
}

/// Notes that the program mapped something of its own over `bytes` bytes at `address`, or fills
/// these pages itself. The spans of the blocks that it covers, which are the caller's, are mapped
/// afresh when they are freed. Takes no lock.
pub fn note_mapped_over(address: usize, bytes: usize) {
    HEAP.pages.note_foreign(address, bytes);
}

/// What becomes of a variable.
enum Fate {
    /// It stays as it is.
    Kept,
    /// Its value, which begins here, is taken out. It was wrong, and that has been said: the
    /// programs that this one starts inherit the variable, and would each say it again.
    Emptied(usize),
}

/// Calls `apply` with every string of an environment.
///
/// # Safety
/// - `envp` is null or an array of C strings that ends in null and that no other thread uses
///   meanwhile.
unsafe fn each_entry(envp: *mut *mut c_char, apply: unsafe fn(*mut *mut c_char, &[u8]) -> Fate) {
    let mut next = envp;
    // SAFETY: the caller's promise; `next` never passes the null.
    while !next.is_null() && unsafe { !(*next).is_null() } {
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(*next) }.to_bytes();
        if entry.starts_with(control::PREFIX.as_bytes()) {
            // SAFETY: as above.
            let fate = unsafe { apply(envp, entry) };
            // SAFETY: as above.
            let string = unsafe { *next };
            if let (Fate::Emptied(at), true) = (fate, thread::is_of_the_kernel(string)) {
                // SAFETY: within the string, of which no code has kept anything; on the stack,
                // where the kernel wrote it.
                unsafe { *string.add(at) = 0 };
            }
        }
        // SAFETY: as above.
        next = unsafe { next.add(1) };
    }
}

/// Puts one `NEAP_*` variable into force, or warns of it.
///
/// # Safety
/// - The process has one thread; `envp` is its environment.
unsafe fn apply(envp: *mut *mut c_char, entry: &[u8]) -> Fate {
    let Some(equals) = entry.iter().position(|&byte| byte == b'=') else {
        return Fate::Kept;
    };
    let (name, text) = (&entry[..equals], &entry[equals + 1..]);
    let Some(option) = control::find(name) else {
        // It may be another program's, so it stays: every process of ours tells of it.
        warn_unknown(name);
        return Fate::Kept;
    };
    match control::parse(option.kind, text) {
        // SAFETY: the caller's promise.
        Ok(value) => unsafe { set(envp, option.name, value) },
        Err(rejected) if !text.is_empty() => {
            warn(format_args!(
                "{}={} is ignored: {rejected}",
                option.env,
                Lossy(text)
            ));
            return Fate::Emptied(equals + 1);
        }
        Err(_) => {}
    }
    Fate::Kept
}

fn warn_unknown(name: &[u8]) {
    match control::nearest_variable(name) {
        Some(near) => warn(format_args!(
            "unknown option {}: is {near} meant?",
            Lossy(name)
        )),
        None => warn(format_args!(
            "unknown option {}: see `neap help run`",
            Lossy(name)
        )),
    }
}

/// # Safety
/// - As [`apply`].
unsafe fn set(envp: *mut *mut c_char, name: &str, value: Value<'_>) {
    match (name, value) {
        // SAFETY: the caller's promise: one thread.
        ("stats", Value::Choice(word)) => unsafe { statistics::choose(word) },
        // SAFETY: as above.
        ("stats-file", Value::Path(path)) => unsafe { statistics::keep_path(path) },
        ("count", Value::Choice("1")) => switch(Mode::Counting),
        ("check", Value::Choice("1")) => switch(Mode::Checking),
        ("decay", Value::Millis(ms)) => HEAP.set_decay_ms(ms),
        ("thread-cache", Value::Bytes(bytes)) => HEAP.budget.set_thread(bytes as usize),
        ("cache", Value::Bytes(bytes)) => HEAP.budget.set_process(bytes as usize),
        ("purge-thread", Value::Choice(word)) => purge::choose(word),
        ("thp", Value::Choice(word)) => HEAP.pages.set_huge(match word {
            "never" => HugePolicy::Never,
            "always" => HugePolicy::Always,
            _ => HugePolicy::Auto,
        }),
        ("dirty-max", Value::Bytes(bytes)) => HEAP.pages.limits().set_dirty(bytes as usize),
        ("limit", Value::Bytes(bytes)) => HEAP.pages.limits().set_hard(bytes as usize),
        ("limit-soft", Value::Bytes(bytes)) => HEAP.pages.limits().set_soft(bytes as usize),
        ("deepbind", Value::Choice(word)) => {
            DEEPBIND_KEPT.store(word == "keep", Ordering::Relaxed);
        }
        ("sample", Value::Bytes(rate)) => profile::want(rate),
        ("attach", Value::Choice("0")) => attach::choose(When::Never),
        ("attach", Value::Choice("1")) => attach::choose(When::AtStart),
        ("answer", Value::Choice("1")) => purge::want_from_start(),
        // SAFETY: as above.
        ("monitor", Value::Path(name)) => unsafe { attach::keep_monitor(name) },
        // SAFETY: the caller's promise.
        ("classes", Value::Path(path)) => unsafe { classes::follow(path) },
        ("ask", Value::Choice("0")) => ask_no_more(),
        // SAFETY: as above.
        ("children", Value::Choice("0")) => unsafe { leave_preload(envp) },
        _ => {}
    }
}

/// Shuts the fast path off for the caches that exist and all to come. Checking outranks counting.
fn switch(mode: Mode) {
    if HEAP.mode() == Mode::Checking {
        return;
    }
    HEAP.drain_all();
    HEAP.set_mode(mode);
    HEAP.registry
        .for_each(|cache| cache.open().set_path(FastPath::Off));
}

/// Takes this library out of `LD_PRELOAD`, so that children start without it.
///
/// # Safety
/// - The process has one thread; `envp` is its environment.
unsafe fn leave_preload(envp: *mut *mut c_char) {
    const NAME: &[u8] = b"LD_PRELOAD=";
    let mut next = envp;
    // SAFETY: the environment is an array of C strings that ends in null.
    while unsafe { !(*next).is_null() } {
        // SAFETY: as above; no other thread uses the string while there is one thread.
        let entry = unsafe { CStr::from_ptr(*next) };
        let length = entry.to_bytes().len();
        // SAFETY: as above.
        if entry.to_bytes().starts_with(NAME) && thread::is_of_the_kernel(unsafe { *next }) {
            // SAFETY: the string's own bytes, on the stack, where the kernel wrote them.
            let text = unsafe { core::slice::from_raw_parts_mut((*next).cast::<u8>(), length) };
            let kept = NAME.len() + without_neap(&mut text[NAME.len()..]);
            // SAFETY: at most the place of the string's own 0.
            unsafe { *(*next).add(kept) = 0 };
        }
        // SAFETY: not past the null.
        next = unsafe { next.add(1) };
    }
}

/// Removes every item whose file name begins with `libneap` from a list that colons or spaces
/// separate, in place. Returns the new length.
fn without_neap(list: &mut [u8]) -> usize {
    let (mut kept, mut start) = (0, 0);
    while start < list.len() {
        let is_separator = |&byte: &u8| byte == b':' || byte == b' ';
        let end = start
            + list[start..]
                .iter()
                .position(is_separator)
                .unwrap_or(list.len() - start);
        if !is_neap(&list[start..end]) {
            let with_separator = (end + 1).min(list.len());
            list.copy_within(start..with_separator, kept);
            kept += with_separator - start;
        }
        start = end + 1;
    }
    kept
}

fn is_neap(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name.starts_with(b"libneap")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neap_leaves_the_preload_list() {
        let without = |text: &str| {
            let mut list = text.as_bytes().to_vec();
            let kept = without_neap(&mut list);
            std::string::String::from_utf8(list[..kept].to_vec()).unwrap()
        };
        assert_eq!(without("/opt/libneap.so"), "");
        assert_eq!(
            without("/opt/libneap.so:/lib/libasan.so"),
            "/lib/libasan.so"
        );
        assert_eq!(without("/a.so /x/libneap_c.so /b.so"), "/a.so /b.so");
        assert_eq!(
            without("/a.so:/libneapolitan/b.so"),
            "/a.so:/libneapolitan/b.so"
        );
    }
}
