//! What happens once per process: reads the options and prepares for fork.
//!
//! Allocation does not wait for any of this: the first call may come from the dynamic loader,
//! before any constructor. Options count from the constructor on.

use crate::base::policy::Reason;
use crate::base::sync::{AtomicBool, AtomicU8, Ordering};
use crate::cache::heap::{CHECKING, COUNTING, HEAP};
use crate::cache::machine;
use crate::cache::measures::{EARLY, Measures, SECRETS};
use crate::cache::tags;
use crate::cache::thread_cache::{Cache, EMPTY};
use crate::fork;
use crate::hook;
use crate::os::Os;
use crate::os::file;
use crate::os::linux::{self, Linux};
use crate::os::loader;
use crate::os::pagemap::forbid as forbid_pagemap;
use crate::os::process;
use crate::os::process::{Lossy, warn};
use crate::os::{areas, nodes, thread};
use crate::pages::{HugePolicy, Use};
use crate::reclaim::thread as purge;
use crate::slab::class;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::{self, NonNull};
use neap_shared::classes;
use neap_shared::control::{self, Value};

/// The frontend that owns this heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Frontend {
    /// libneap.so.
    C = 1,
    /// A Rust program's own allocator.
    Rust = 2,
}

#[unsafe(link_section = "neap_fork")]
static FRONTEND: AtomicU8 = AtomicU8::new(Frontend::Rust as u8);

/// Sets the frontend. Unless this is called before the process [begins](begin), the frontend is a
/// Rust program's own allocator.
pub fn set_frontend(frontend: Frontend) {
    FRONTEND.store(frontend as u8, Ordering::Relaxed);
}

/// The frontend.
pub fn frontend() -> Frontend {
    match FRONTEND.load(Ordering::Relaxed) == Frontend::C as u8 {
        true => Frontend::C,
        false => Frontend::Rust,
    }
}

/// Begins the process, once: reads the options, prepares for fork. `libneap.so` and `libneap.a`
/// call it from their constructor; in a Rust program the first allocation does, before `main`.
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

/// [`begin`], in a call of the program's, unless the process has begun: on a stack of its own,
/// because the caller's may be a coroutine's. In libneap.so, where the call comes before its
/// constructor, this starts the library.
pub fn begin_on_the_way() {
    if !BEGUN.load(Ordering::Relaxed) {
        begin_now();
    }
}

#[cold]
fn begin_now() {
    if let Some(start) = loader::library_start() {
        return start();
    }
    let envp = process::environment();
    if is_first(envp) {
        // SAFETY: the C library's own array; the process's first call comes before `main`, from one
        // thread.
        areas::on_stack(|| unsafe { begin_first(envp) });
    }
}

/// Whether the process has [begun](begin).
#[unsafe(link_section = "neap_fork")]
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether there is an environment, and this is the first call with one.
fn is_first(envp: *mut *mut c_char) -> bool {
    !envp.is_null() && !BEGUN.swap(true, Ordering::Relaxed)
}

/// # Safety
/// - As [`begin`]; for the first caller only.
unsafe fn begin_first(envp: *mut *mut c_char) {
    // A thread that sleeps before there is a status page would not hear what rings by the page. The
    // C library may allocate in here.
    // SAFETY: the caller's promise.
    purge::start_none_during(|| unsafe { begin_alone(envp) });
}

/// # Safety
/// - As [`begin_first`].
unsafe fn begin_alone(envp: *mut *mut c_char) {
    process::note_own();
    loader::begin();
    process::find_clock();
    nodes::find_teller();
    if !process::is_secure() {
        // SAFETY: the caller's promise.
        unsafe { apply_all(envp) };
    }
    // Before the program can reserve signals for itself.
    thread::SignalMask::all();
    // After the options: musl keeps the handlers in a block, whose size they may change.
    fork::register();
    // Last: with `NEAP_KERNEL_QUERIES=0` not even this.
    process::note_filter();
    // Now, while the process has one thread. A filter from before the start may kill for it.
    if process::started_unfiltered() {
        thread::prepare_barrier();
    }
    hook::instruments().begin();
}

/// The calling thread's cache or sentinel.
#[inline(always)]
pub(crate) fn current() -> &'static Cache {
    // SAFETY: the slot holds a sentinel or the thread's cache, which lives until the slot changes.
    unsafe { &*machine::slot() }
}

/// The thread's cache, made at the first need; `None` if memory is short or the
/// thread is ending.
pub fn entered() -> Option<&'static Cache> {
    let cache = current();
    if ptr::eq(cache, &EMPTY) {
        return enter();
    }
    Some(cache).filter(|cache| !cache.is_sentinel())
}

/// The thread's cache, for a free. A thread without one may be past its destructors, where the C
/// library frees what the thread used. So only one in `FREES` such frees, counted over all
/// threads, makes a cache. A thread that goes on freeing gets one.
pub(crate) fn entered_to_free() -> Option<&'static Cache> {
    const FREES: u8 = 64;
    static PASSED: AtomicU8 = AtomicU8::new(0);
    if !ptr::eq(current(), &EMPTY) {
        return entered();
    }
    begin_on_the_way();
    match PASSED.fetch_add(1, Ordering::Relaxed) % FREES == FREES - 1 {
        true => entered(),
        false => None,
    }
}

/// The thread's first slow call.
#[cold]
fn enter() -> Option<&'static Cache> {
    // First: there must be no cache yet when other classes are put into force.
    begin_on_the_way();
    let cache = current();
    if ptr::eq(cache, &EMPTY) {
        return HEAP.enter(at_thread_end);
    }
    // It has allocated, and so entered.
    Some(cache).filter(|cache| !cache.is_sentinel())
}

/// The thread is ending: its cache goes back.
///
/// # Safety
/// - `cache` is null, the calling thread's cache, which nothing reaches afterwards, or that of a
///   thread that is gone.
pub(crate) unsafe extern "C" fn at_thread_end(cache: *mut c_void) {
    // A thread may reuse the stack of one that entered after its destructors, and then finds that
    // thread's value.
    let is_own = ptr::eq(current(), cache.cast());
    if let Some(cache) = NonNull::new(cache.cast::<Cache>()).filter(|_| is_own) {
        let waiting = HEAP.retire_cache(cache);
        // SAFETY: freed by the program, and held back since.
        unsafe {
            if !hook::instruments().hold_back(&waiting) {
                HEAP.give_all(&waiting);
            }
        }
    }
}

/// Begins the process, as the first allocation does, if no call has: reads the options, prepares
/// for fork. What a program sets afterwards takes precedence over its environment.
pub fn initialize() {
    let _ = entered();
}

/// Starts the thread now, if it is to run from the start on. The program has one thread, and none
/// of its calls is under way.
pub fn start_eagerly() {
    let eager = purge::is_wanted_from_start() && purge::is_enabled();
    if eager && entered().is_some() {
        purge::start_thread();
    }
}

/// From now on Neap makes no other system calls than every allocator does: the program forbids
/// itself system calls, or is about to, and does not know Neap's. In a child of `vfork` this also
/// holds for the parent.
pub fn ask_no_more() {
    forbid_pagemap();
    process::forbid_queries();
    purge::disable();
    // Both are asked once per process, when they are first needed. Ask now, so that it does not
    // happen later.
    Linux.strict_commit();
    linux::test_advice();
}

/// Takes hold of the heap's address space, so that what the program maps before its first
/// allocation cannot keep it from that.
pub fn open() {
    HEAP.pages.open();
}

/// Puts the options of an environment into force.
///
/// # Safety
/// - `envp` is null or an array of C strings that ends in null and that no other thread uses
///   meanwhile.
unsafe fn apply_all(envp: *mut *mut c_char) {
    // SAFETY: the caller's promise.
    for string in unsafe { process::strings_of(envp) } {
        // SAFETY: a C string.
        let entry = unsafe { CStr::from_ptr(string) }.to_bytes();
        if entry.starts_with(control::PREFIX.as_bytes())
            // SAFETY: the caller's promise.
            && let Some(at) = unsafe { apply(entry) }
            && process::is_of_the_kernel(string)
        {
            // SAFETY: within the string, of which no code has kept anything; on the stack, where
            // the kernel wrote it.
            unsafe { *string.add(at) = 0 };
        }
    }
}

/// Puts one `NEAP_*` variable into force, or warns of it. If the value is wrong, and this process
/// has reported that, returns where the value begins, so that the caller removes it. Otherwise each
/// program that this one starts would report it again.
///
/// # Safety
/// - The process has one thread.
unsafe fn apply(entry: &[u8]) -> Option<usize> {
    let equals = entry.iter().position(|&byte| byte == b'=')?;
    let (name, text) = (&entry[..equals], &entry[equals + 1..]);
    let Some(option) = control::find(name) else {
        // It may be another program's, so it stays, and every process under Neap reports it.
        warn_unknown(name);
        return None;
    };
    match control::parse(option.kind, text) {
        // SAFETY: the caller's promise.
        Ok(value) => unsafe { set(option.name, value) },
        Err(rejected) if !text.is_empty() => {
            warn(format_args!(
                "{}={} is ignored: {rejected}",
                Lossy(name),
                Lossy(text)
            ));
            return Some(equals + 1);
        }
        Err(_) => {}
    }
    None
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
unsafe fn set(name: &str, value: Value<'_>) {
    match (name, value) {
        ("count", Value::Choice("1")) => switch(COUNTING),
        ("check", Value::Choice("1")) => take_measures(Measures::CHECK),
        ("harden", Value::Names(bits)) if bits != 0 => take_measures(Measures::named(bits)),
        ("decay", Value::Millis(ms)) => HEAP.pages.limits().set_decay_ms(ms),
        ("thread-cache", Value::Bytes(bytes)) => HEAP.budget.set_thread(bytes as usize),
        ("cache", Value::Bytes(bytes)) => HEAP.budget.set_process(bytes as usize),
        ("purge-thread", Value::Choice(word)) => purge::choose(word),
        ("thp", Value::Choice(word)) => HEAP.pages.set_huge(match word {
            "never" => HugePolicy::Never,
            "always" => HugePolicy::Always,
            _ => HugePolicy::Auto,
        }),
        ("limit-dirty", Value::Bytes(bytes)) => HEAP.pages.limits().set_dirty(bytes as usize),
        ("limit", Value::Bytes(bytes)) => HEAP.pages.limits().set_hard(bytes as usize),
        ("limit-soft", Value::Bytes(bytes)) => HEAP.pages.limits().set_soft(bytes as usize),
        ("answer", Value::Choice("1")) => purge::want_from_start(),
        // SAFETY: the caller's promise.
        ("classes", Value::Path(path)) => unsafe { follow_classes(path) },
        ("kernel-queries", Value::Choice("0")) => ask_no_more(),
        // SAFETY: the caller's promise: one thread.
        ("guard", _) => unsafe {
            // It arms the threads whose calls all take the fast path.
            purge::want_from_start();
            hook::instruments().set_option(name, value);
        },
        // SAFETY: as above.
        _ => unsafe { hook::instruments().set_option(name, value) },
    }
}

/// Switches the fast path off for all existing and future caches.
fn switch(mode: u8) {
    HEAP.decay(Reason::Refusal);
    HEAP.set_mode(mode, true);
    HEAP.set_paths();
}

/// Puts measures against memory errors into force, for good.
///
/// Blocks that were handed out before have nothing that these check.
pub fn take_measures(measures: Measures) {
    SECRETS.draw();
    if measures.has(Measures::RANDOM) {
        linux::scatter(SECRETS.next());
    }
    if !HEAP.measures().harden() && HEAP.pages.extent() > 0 {
        EARLY.set(HEAP.pages.primary_used());
    }
    tags::start(measures);
    HEAP.add_measures(measures);
    switch(CHECKING);
}

const PATH_BYTES: usize = 4096;

/// Puts the classes of a file into force, or prints why not and keeps the built-in ones.
///
/// # Safety
/// - The process has one thread.
#[cold]
#[inline(never)]
unsafe fn follow_classes(path: &[u8]) {
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
    let Some(read) = read_file(path, &mut text) else {
        return ignored(format_args!("it is no regular file, or cannot be read"));
    };
    match classes::parse(&text[..read]) {
        // SAFETY: no slab and no cache, just seen, and one thread by the caller's promise; it is
        // libneap.so.
        Ok(sizes) => unsafe {
            class::replace(sizes.list());
            HEAP.choose_no_bytes();
        },
        Err(rejected) => ignored(format_args!("{rejected}")),
    }
}

/// Whether no thread has a cache or a block.
fn is_untouched() -> bool {
    // Metadata lies in slabs as well, whose records hold class numbers.
    let used = HEAP.pages.totals().by_use;
    let slabs = [Use::Slab, Use::Meta].map(|use_| used[use_ as usize - 1].slices);
    HEAP.registry.is_empty() && slabs == [0, 0]
}

fn read_file(path: &[u8], text: &mut [u8]) -> Option<usize> {
    let mut name = [0; PATH_BYTES];
    name[..PATH_BYTES - 1]
        .get_mut(..path.len())?
        .copy_from_slice(path);
    file::read_file(CStr::from_bytes_until_nul(&name).ok()?, text)
}
