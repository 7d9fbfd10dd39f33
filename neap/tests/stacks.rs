//! Stacks on the real system: many at once, their guards, the pages that the heap reuses, and fork.

#[path = "../../ci/older_kernel.rs"]
mod older_kernel;
#[path = "../../ci/skips.rs"]
mod skips;

use neap::Neap;
use neap::stack::{self, Stack, StackError};
use neap::stats::snapshot;
use neap_heap::cache::heap::HEAP;
use neap_heap::stacks::stack::totals;
use older_kernel::Kernel;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::process::Command;

const KIB: usize = 1 << 10;
const BURST: usize = 50_000;

/// Runs one test of this file again, alone in a process: the heap and its figures are the
/// process's.
fn alone(name: &str) -> bool {
    alone_on(name, &[Kernel::Own]).is_some()
}

/// [`alone`] on each of these kernels. In such a process, the kernel.
fn alone_on(name: &str, kernels: &[Kernel]) -> Option<Kernel> {
    const MARK: &str = "STACKS_TEST_ALONE";
    if let Some(mark) = std::env::var_os(MARK) {
        let is_it = |kernel: &&Kernel| *mark == *format!("{kernel:?}");
        return kernels.iter().find(is_it).copied();
    }
    for &kernel in kernels {
        if kernel == Kernel::WithoutAdvice && !older_kernel::has_userfaultfd() {
            skips::announce("the kernel refuses userfaultfd");
            continue;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--test-threads=1", "--nocapture"]);
        older_kernel::run_on(command.env(MARK, format!("{kernel:?}")), kernel);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kernel:?}: {text}");
        assert!(text.contains("1 passed"), "{text}");
        for line in text.lines().filter(|line| line.starts_with("SKIPPED")) {
            // Not eprintln: the harness would hide it in a test that passes.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    None
}

/// Whether the kernel refuses to write to a page: no process ends for that.
fn is_guarded(stack: &Stack) -> bool {
    let guard = stack.limit().as_ptr().wrapping_sub(1);
    // SAFETY: a pipe of our own. The kernel writes one byte, where no stack has any.
    unsafe {
        let mut ends = [0; 2];
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        assert_eq!(libc::write(ends[1], b"x".as_ptr().cast(), 1), 1);
        let read = libc::read(ends[0], guard.cast(), 1);
        for end in ends {
            libc::close(end);
        }
        read == -1
    }
}

fn touch(stack: &Stack) {
    // SAFETY: in a stack that no thread runs on.
    unsafe { stack.top().as_ptr().sub(8).cast::<u64>().write(1) };
}

fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// Whether a child that has used a stack, and then writes to `address`, dies of SIGSEGV or SIGBUS.
fn faults(address: *mut u8) -> bool {
    // SAFETY: the child writes once and ends.
    unsafe {
        match libc::fork() {
            0 => {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
                drop(Stack::new(64 * KIB));
                address.write_volatile(1);
                libc::_exit(0);
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                libc::WIFSIGNALED(status)
                    && [libc::SIGSEGV, libc::SIGBUS].contains(&libc::WTERMSIG(status))
            }
        }
    }
}

#[test]
fn sizes_are_checked_and_rounded() {
    for (asked, address) in [(8, 8), (9, 16), (32, 32), (33, 64), (65, 128), (8192, 8192)] {
        let stack = Stack::new(asked * KIB).unwrap();
        // The guard is one OS page: the rounded sizes hold on machines with pages of 4 KiB.
        let page = address * KIB - stack.bytes();
        assert!(page.is_power_of_two() && page >= 4 * KIB);
        assert_eq!(stack.top().addr().get() % page, 0);
        assert_eq!(
            stack.limit().addr().get() + stack.bytes(),
            stack.top().addr().get()
        );
        // SAFETY: the stack's own bytes.
        unsafe { stack.limit().as_ptr().write_bytes(1, stack.bytes()) };
    }
    for asked in [0, 1, 8 * KIB - 1, 8192 * KIB + 1, usize::MAX] {
        assert_eq!(Stack::new(asked).unwrap_err(), StackError::Size);
    }
}

#[test]
fn fifty_thousand_stacks_with_guards() {
    let kernels = [Kernel::Own, Kernel::WithoutAdvice];
    let Some(kernel) = alone_on("fifty_thousand_stacks_with_guards", &kernels) else {
        return;
    };
    let stacks: Vec<_> = (0..BURST).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    stacks.iter().for_each(touch);
    let counts = totals();
    assert_eq!(
        (counts.used, counts.guards + counts.write_guards),
        (BURST, BURST)
    );
    assert_eq!((counts.mapped_guards, counts.lost), (0, 0));
    assert!(kernel == Kernel::Own || counts.write_guards == BURST);
    assert!(mappings() < 500, "{} mappings", mappings());
    assert!(stacks.iter().all(is_guarded));
    for stack in stacks.iter().step_by(BURST / 4) {
        assert!(faults(stack.limit().as_ptr().wrapping_sub(1)), "a guard");
        assert!(!faults(stack.limit().as_ptr()), "usable down to the limit");
    }
}

/// What a child that asked for reports wrote on stderr when it died of a write to a guard.
fn report_of(stack: &Stack) -> String {
    let mut ends = [0; 2];
    // SAFETY: a pipe of our own; the child has one thread, and ends.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::dup2(ends[1], 2);
            if stack::report_overflows() {
                stack.limit().as_ptr().wrapping_sub(1).write_volatile(1);
            }
            libc::_exit(0);
        }
        libc::close(ends[1]);
        let mut text = String::new();
        let mut reader = fs::File::from_raw_fd(ends[0]);
        reader.read_to_string(&mut text).unwrap();
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFSIGNALED(status), "{status:#x} {text}");
        assert!([libc::SIGSEGV, libc::SIGBUS].contains(&libc::WTERMSIG(status)));
        text
    }
}

/// However the guard was made.
#[test]
fn each_overflow_names_its_stack() {
    let kernels = [
        Kernel::Own,
        Kernel::WithoutAdvice,
        Kernel::WithoutUserfaultfd,
    ];
    if alone_on("each_overflow_names_its_stack", &kernels).is_none() {
        return;
    }
    let named = |number: usize| {
        let stack = Stack::new((64 << (number % 3)) * KIB).unwrap();
        let name = CString::new(format!("coroutine {number}")).unwrap();
        stack.set_owner(Box::leak(name.into_boxed_c_str()));
        stack
    };
    let stacks: Vec<_> = (0..100).map(named).collect();
    for (number, stack) in stacks.iter().enumerate() {
        let (address, bytes) = (stack.limit().addr().get() - 1, stack.bytes());
        let expected = format!(
            "neap: stack overflow at {address:#x}, in the guard of a stack of {bytes} bytes \
             (owner \"coroutine {number}\")\n"
        );
        assert_eq!(report_of(stack), expected);
    }
}

#[test]
fn the_heap_gets_the_pages_of_ended_stacks() {
    let kernels = [Kernel::Own, Kernel::WithoutAdvice];
    if alone_on("the_heap_gets_the_pages_of_ended_stacks", &kernels).is_none() {
        return;
    }
    let stacks: Vec<_> = (0..BURST).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    stacks.iter().for_each(touch);
    drop(stacks);
    let page = 4 * KIB as u64;
    let figures = snapshot();
    let dirty = figures.free_dirty / page;
    assert!(
        (BURST as u64 - 64..=BURST as u64 + 64).contains(&dirty),
        "one dirty page a stack, not all of them: {dirty}"
    );
    // What was a stack is a block now.
    let committed = figures.committed;
    let layout = Layout::from_size_align(256 << 20, 16).unwrap();
    // SAFETY: the size is not 0.
    let block = unsafe { Neap.alloc(layout) };
    assert!(!block.is_null());
    assert_eq!(
        snapshot().committed,
        committed,
        "nothing new from the kernel"
    );
    // SAFETY: a live block.
    unsafe {
        block.write_bytes(1, 256 << 20);
        Neap.dealloc(block, layout);
    }
}

#[test]
fn trimming_keeps_what_is_above_the_stack_pointer() {
    let stack = Stack::new(256 * KIB).unwrap();
    // SAFETY: no thread runs on the stack; all addresses are in it.
    unsafe {
        stack.limit().as_ptr().write_bytes(7, stack.bytes());
        let pointer = stack.top().as_ptr().sub(10_000);
        let given = stack.trim(pointer);
        let below = stack.bytes() - 10_000;
        assert!(
            given <= below && given > below - 8 * KIB,
            "{given} of {below}"
        );
        // The red zone and everything above are what they were; the rest reads as zero.
        let kept = std::slice::from_raw_parts(pointer.sub(128), 10_128);
        assert!(kept.iter().all(|&byte| byte == 7));
        let gone = std::slice::from_raw_parts(stack.limit().as_ptr(), given);
        assert!(gone.iter().all(|&byte| byte == 0));
        assert_eq!(stack.trim(pointer), 0, "nothing left");
        assert_eq!(stack.trim(stack.limit().as_ptr()), 0);
    }
}

#[test]
fn ownership_goes_through_a_pointer() {
    let stack = Stack::new(64 * KIB).unwrap();
    let limit = stack.limit();
    let top = stack.into_raw();
    // SAFETY: from `into_raw` just above.
    let again = unsafe { Stack::from_raw(top) };
    assert_eq!((again.limit(), again.top()), (limit, top));
}

#[test]
fn stacks_end_on_other_threads() {
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            std::thread::spawn(move || {
                let (sender, receiver) = std::sync::mpsc::channel::<Stack>();
                let ender = std::thread::spawn(move || receiver.into_iter().for_each(drop));
                for round in 0..2000 {
                    let stack = Stack::new((8 << ((round + seed) % 6)) * KIB).unwrap();
                    touch(&stack);
                    sender.send(stack).unwrap();
                }
                drop(sender);
                ender.join().unwrap();
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(HEAP.pages.check(), Ok(()));
}

/// A child of a process whose other threads are busy with stacks finds a pool that works.
#[test]
fn forked_children_have_stacks() {
    let kernels = [Kernel::Own, Kernel::WithoutAdvice];
    if alone_on("forked_children_have_stacks", &kernels).is_none() {
        return;
    }
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let busy = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let stacks: Vec<_> = (0..200).map(|_| Stack::new(64 * KIB).unwrap()).collect();
                stacks.iter().for_each(touch);
            }
        })
    };
    let kept = Stack::new(64 * KIB).unwrap();
    touch(&kept);
    for _ in 0..100 {
        // SAFETY: the child uses stacks, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let new = [8, 64, 64, 1024].map(|kib| Stack::new(kib * KIB));
            let works = new.iter().all(|stack| {
                stack.as_ref().is_ok_and(|stack| {
                    touch(stack);
                    true
                })
            });
            drop(new);
            stack::free_cached();
            // SAFETY: the parent's word was copied; ends the child.
            unsafe {
                let whole = works && is_guarded(&kept);
                let copied = kept.top().as_ptr().sub(8).cast::<u64>().read() == 1;
                libc::_exit(i32::from(!(whole && copied)));
            }
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    busy.join().unwrap();
}

/// Short of address space, there is an error and not a crash, and what was had is usable.
#[test]
fn out_of_memory_is_an_error() {
    if !alone("out_of_memory_is_an_error") {
        return;
    }
    let limit = libc::rlimit {
        rlim_cur: 1 << 30,
        rlim_max: 1 << 30,
    };
    // SAFETY: reads a structure of ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let mut stacks = Vec::with_capacity(1000);
    let error = loop {
        match Stack::new(8192 * KIB) {
            Ok(stack) => stacks.push(stack),
            Err(error) => break error,
        }
    };
    assert_eq!(error, StackError::OutOfMemory);
    assert!(stacks.len() > 10 && stacks.len() < 128, "{}", stacks.len());
    stacks.iter().for_each(touch);
    stacks.truncate(stacks.len() / 2);
    assert!(Stack::new(1024 * KIB).is_ok());
}

/// Guards that are mappings have a share, and then there is an error.
#[test]
fn mapped_guards_keep_within_their_share() {
    let kernels = [Kernel::WithoutUserfaultfd];
    if alone_on("mapped_guards_keep_within_their_share", &kernels).is_none() {
        return;
    }
    let most: usize = fs::read_to_string("/proc/sys/vm/max_map_count")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let share = most / 4;
    if share > 100_000 {
        return;
    }
    let mut stacks = Vec::with_capacity(share + 1);
    let error = loop {
        match Stack::new(64 * KIB) {
            Ok(stack) => stacks.push(stack),
            Err(error) => break error,
        }
    };
    assert_eq!((error, stacks.len()), (StackError::OutOfMappings, share));
    assert_eq!(totals().mapped_guards, share);
    assert!(faults(stacks[share / 2].limit().as_ptr().wrapping_sub(1)));
    drop(stacks);
    stack::free_cached();
    assert_eq!(totals().mapped_guards, 0);
    assert!(mappings() < 500, "{} mappings", mappings());
}

/// Locked memory takes no guards by advice, and does not give pages back.
#[test]
fn stacks_in_locked_memory_have_guards() {
    let kernels = [
        Kernel::Own,
        Kernel::WithoutAdvice,
        Kernel::WithoutUserfaultfd,
    ];
    if alone_on("stacks_in_locked_memory_have_guards", &kernels).is_none() {
        return;
    }
    let early: Vec<_> = (0..10).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    // SAFETY: takes no pointers.
    let locked =
        unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    if locked != 0 {
        let why = "this process may not lock enough memory (RLIMIT_MEMLOCK)";
        return skips::needs_root(why);
    }
    let late: Vec<_> = (0..1000).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    assert!(early.iter().chain(&late).all(is_guarded));
    drop((early, late));
    stack::free_cached();
    let counts = totals();
    let guards = counts.guards + counts.mapped_guards + counts.write_guards;
    assert_eq!((guards, counts.lost), (0, 0));
    assert_eq!(HEAP.pages.check(), Ok(()));
}

/// The program closes descriptors that it does not know, and opens others under their numbers.
#[test]
fn guards_come_back_when_their_descriptor_is_closed() {
    let name = "guards_come_back_when_their_descriptor_is_closed";
    if alone_on(name, &[Kernel::WithoutAdvice]).is_none() {
        return;
    }
    let mut stacks: Vec<_> = (0..100).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    for round in 0..3 {
        assert!(stacks.iter().all(is_guarded));
        // SAFETY: no code of this process has a file above the third open.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        assert!(!stacks.iter().any(is_guarded));
        if round == 1 {
            // SAFETY: a plain number; the child of this test inherits them.
            unsafe { (0..64).for_each(|_| _ = libc::dup(0)) };
        }
        match round {
            0 => stacks.push(Stack::new(512 * KIB).unwrap()),
            _ => _ = stack::free_cached(),
        }
    }
    assert!(stacks.iter().all(is_guarded));
    drop(stacks);
    stack::free_cached();
    let counts = totals();
    assert_eq!((counts.write_guards, counts.lost), (0, 0));
}

/// A child has no guards until it uses a stack, and then its own, whatever its parent does.
#[test]
fn a_child_has_guards_of_its_own() {
    if alone_on("a_child_has_guards_of_its_own", &[Kernel::WithoutAdvice]).is_none() {
        return;
    }
    let stacks: Vec<_> = (0..100).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, mut generation) = (descriptors(), 0);
    loop {
        // SAFETY: the child goes on, and its parent ends with its status.
        let child = unsafe { libc::fork() };
        if child != 0 {
            let mut status = 0;
            // SAFETY: waits for the child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(stacks.iter().all(is_guarded), "{generation}");
            assert_eq!(status, 0);
            if generation == 0 {
                break;
            }
            // SAFETY: ends this child.
            unsafe { libc::_exit(0) };
        }
        generation += 1;
        let lost = !stacks.iter().any(is_guarded);
        drop(Stack::new(64 * KIB).unwrap());
        let whole = stacks.iter().all(is_guarded) && descriptors() == before;
        if !(lost && whole) || generation == 5 {
            // SAFETY: ends this child.
            unsafe { libc::_exit(i32::from(!(lost && whole))) };
        }
    }
}
