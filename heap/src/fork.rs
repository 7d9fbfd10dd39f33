//! What happens around a copy of the process: the C library's `fork`, and raw copies that the C
//! frontend sees.
//!
//! Before the kernel copies, [`prepare`] brings the whole heap to rest ([`crate::os::fork`]). Then
//! [`in_parent`] or [`in_child`] releases it. The child writes as little as it can, because most
//! children soon `exec` or end. It does not touch a lock that is free, and makes its status page
//! only on its first slow path.
//!
//! # What the child finds
//!
//! The table of [locks](crate::os::lock_order) says it for each of them. A cache whose thread was
//! changing it loses its magazines, and is out of the list. A thread that was itself draining, or
//! changing the list of caches, finds the other caches there when it goes on; those whose threads
//! were changing them are [empty for it](crate::cache::opened::Opened::abandon).
//!
//! A thread that was putting its cache into the list, or taking it out, goes on with that. Its slot
//! need not show the cache then, but the cache names the thread.
//!
//! `docs/decisions/0016-fork.md` has the measurements.

use crate::base::sync::{AtomicBool, AtomicPtr, Ordering};
use crate::cache::heap::HEAP;
use crate::hook::instruments;
use crate::os;
use crate::os::fork::{FORK, holds_any};
use crate::os::lock::Lock;
use crate::os::pagemap::close_inherited as close_inherited_pagemap;
use crate::os::{cgroup, fault, process, write_guard};
use crate::reclaim::{start, thread};
use core::ptr::null_mut;

/// What copies the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copier {
    /// The C library's `fork`, which calls handlers.
    CLibrary,
    /// A raw system call. The C library does not know of it, so the child starts no thread.
    Raw,
}

/// Registers the handlers. Early: handlers registered before these run while the heap is closed.
pub(crate) fn register() {
    os::process::at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/// Whether `handler`, to be called before a fork, is the heap's.
pub fn is_own_handler(handler: unsafe extern "C" fn()) -> bool {
    core::ptr::fn_addr_eq(handler, before_fork as unsafe extern "C" fn())
}

/// The C library's lock on its list of streams, which its `fork` takes after all handlers.
///
/// A thread that holds it waits for streams (`fflush(NULL)`), and a thread that holds a stream
/// allocates (`getline`). So it comes before every lock of the heap.
#[derive(Debug)]
pub struct StreamLock {
    /// Whether the process has one thread: then `fork` does not take the lock. `None` where the C
    /// library does not say.
    pub is_single: fn() -> Option<bool>,
    /// Takes the lock, for a fork.
    pub take: fn(),
    /// In the parent: gives back what the fork took, if it took it.
    pub give_back: fn(),
    /// In the child: the lock is free.
    pub reset: fn(),
}

#[unsafe(link_section = "neap_fork")]
static STREAMS: AtomicPtr<StreamLock> = AtomicPtr::new(null_mut());

/// Sets the lock. If it is never set, the C library has no lock that a fork must take first.
pub fn set_stream_lock(lock: &'static StreamLock) {
    STREAMS.store(core::ptr::from_ref(lock).cast_mut(), Ordering::Release);
}

fn streams() -> Option<&'static StreamLock> {
    // SAFETY: null, or a reference that `set_stream_lock` got.
    unsafe { STREAMS.load(Ordering::Acquire).as_ref() }
}

/// Whether the process that forks has one thread. Then every lock that is held is that thread's.
/// guarded by: [`FORK`]
#[unsafe(link_section = "neap_fork")]
static ALONE: AtomicBool = AtomicBool::new(false);

/// Brings the heap to rest.
///
/// # Safety
/// - Followed by [`in_parent`] or [`in_child`] with the same `copier`, on the same thread. Between
///   them no thread is started.
pub unsafe fn prepare(copier: Copier) {
    thread::before_fork();
    let mut makes_way = true;
    // SAFETY: the caller's promise; `release` ends a fork that makes way.
    while let Err(other) = unsafe { bring_to_rest(copier, makes_way) } {
        // SAFETY: `bring_to_rest` has just begun it.
        unsafe { release(copier) };
        makes_way = FORK.make_way(other);
    }
}

/// Takes the C library's list of streams, begins a fork, and brings the heap to rest. With
/// `makes_way`, `Err` names a thread that must fork first, from a handler that interrupted a
/// change.
///
/// # Safety
/// - Followed by [`release`], or as [`prepare`].
unsafe fn bring_to_rest(copier: Copier, makes_way: bool) -> Result<(), usize> {
    // Then the C library's fork takes its list of streams.
    let streams = streams();
    let is_alone = || streams.and_then(|streams| (streams.is_single)()) == Some(true);
    let taken = streams.filter(|_| copier == Copier::CLibrary && !is_alone());
    let coming = taken.map(|_| FORK.note_coming());
    if let Some(streams) = taken {
        (streams.take)();
    }
    // SAFETY: the caller's promise.
    unsafe { FORK.begin() };
    drop(coming);
    let alone = is_alone();
    ALONE.store(alone, Ordering::Relaxed);
    match alone {
        true => Ok(()),
        false => FORK.close(&each_lock, makes_way),
    }
}

/// Visits all locks but those of caches, in their order.
#[unsafe(link_section = "neap_text")]
fn each_lock(visit: &mut dyn FnMut(&Lock)) {
    for lock in instruments().locks() {
        visit(lock);
    }
    HEAP.each_lock(visit);
}

/// Releases the heap, in the process that was copied, or was to be copied.
///
/// # Safety
/// - [`prepare`] was called by this thread, with the same `copier`.
pub unsafe fn in_parent(copier: Copier) {
    // SAFETY: the caller's promise.
    unsafe { release(copier) };
    thread::after_fork_in_parent();
}

/// Opens the heap again, and gives back what the fork took.
///
/// # Safety
/// - [`bring_to_rest`] was called by this thread, with the same `copier`.
unsafe fn release(copier: Copier) {
    // SAFETY: the caller's promise.
    unsafe { FORK.in_parent() };
    // A raw copy has not taken it. Another thread, which is about to fork, may have.
    if let (Copier::CLibrary, Some(streams)) = (copier, streams()) {
        (streams.give_back)();
    }
}

/// Releases the heap in the copy, whose only thread this is.
///
/// # Safety
/// - [`prepare`] was called by the thread that this one is the copy of.
#[unsafe(link_section = "neap_text")]
pub unsafe fn in_child(copier: Copier) {
    // SAFETY: the caller's promise.
    unsafe { FORK.in_child() };
    // A lone thread left none behind, and the locks are on a dozen pages.
    if !ALONE.load(Ordering::Relaxed) {
        each_lock(&mut |lock| _ = lock.free_if_whole());
        // SAFETY: in the child, whose only thread this is.
        unsafe { HEAP.after_fork_in_child() };
    }
    fault::after_fork_in_child();
    // Before the status page, because only a process that is its own may make one.
    thread::after_fork_in_child();
    start::after_fork_in_child();
    if copier == Copier::CLibrary {
        // The C library knows of the fork, so the child may start a thread.
        process::note_own();
        // Before anything takes the page heap's lock, which writes to the status page.
        instruments().after_fork_in_child();
        // A raw copy may share the parent's descriptors.
        write_guard::close_last();
    }
    process::set_memory_locked(false);
    close_inherited_pagemap();
    cgroup::end_inherited();
    if let Some(streams) = streams() {
        (streams.reset)();
    }
    // SAFETY: as above.
    unsafe { FORK.end_in_child() };
    // Not in a handler that interrupted a change, for it may be one that calls no kernel.
    if HEAP.stacks.has_write_guards() && !holds_any(&each_lock) {
        HEAP.stacks.after_fork_in_child(&HEAP.pages);
    }
}

/// Copies the process by `copy`, which returns 0 in the copy, and both times on the stack that it
/// was called on.
pub fn around(copy: impl FnOnce() -> i64) -> i64 {
    // SAFETY: followed by one of the two below.
    unsafe { prepare(Copier::Raw) };
    let child = copy();
    match child {
        // SAFETY: prepared above, by the thread that this one is the copy of.
        0 => unsafe { in_child(Copier::Raw) },
        // SAFETY: prepared above.
        _ => unsafe { in_parent(Copier::Raw) },
    }
    child
}

#[unsafe(link_section = "neap_text")]
unsafe extern "C" fn before_fork() {
    // SAFETY: the C library calls one of the two below next, on this thread or its copy.
    unsafe { prepare(Copier::CLibrary) };
}

#[unsafe(link_section = "neap_text")]
unsafe extern "C" fn after_fork_in_parent() {
    // SAFETY: `before_fork` ran on this thread.
    unsafe { in_parent(Copier::CLibrary) };
}

#[unsafe(link_section = "neap_text")]
unsafe extern "C" fn after_fork_in_child() {
    // SAFETY: `before_fork` ran on the thread that this one is the copy of.
    unsafe { in_child(Copier::CLibrary) };
}
