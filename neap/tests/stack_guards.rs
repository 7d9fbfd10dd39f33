//! Guards of stacks: many at once, in each way that a kernel has, reported, and put back when they
//! are lost.

#[path = "support/alone.rs"]
mod alone;
#[path = "../../ci/older_kernel.rs"]
mod older_kernel;
#[path = "../../ci/skips.rs"]
mod skips;

use alone::{BURST, KIB, alone_on, is_guarded, mappings, touch};
use neap::Neap;
use neap::stack::{self, Stack, StackError};
use neap_heap::cache::heap::HEAP;
use neap_heap::stacks::stack::totals;
use older_kernel::Kernel;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::FromRawFd;

/// Whether a child that writes to `address` dies of SIGSEGV or SIGBUS.
fn faults(address: *mut u8) -> bool {
    // SAFETY: the child writes once and ends.
    unsafe {
        match libc::fork() {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
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
fn fifty_thousand_stacks_with_guards() {
    if !older_kernel::has_advice() && !older_kernel::has_write_guards() {
        return skips::announce("no guards here that cost no mapping");
    }
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
    assert!(mappings() < 200, "{} mappings", mappings());
    assert!(stacks.iter().all(is_guarded));
    for stack in stacks.iter().step_by(BURST / 4) {
        assert!(faults(stack.limit().as_ptr().wrapping_sub(1)), "a guard");
        assert!(!faults(stack.limit().as_ptr()), "usable down to the limit");
    }
}

/// Of every size, new and in memory of blocks that were freed, however the guard was made.
#[test]
fn guards_are_wider_than_the_largest_frame() {
    let kernels = [
        Kernel::Own,
        Kernel::WithoutAdvice,
        Kernel::WithoutUserfaultfd,
        Kernel::InSandbox,
    ];
    if alone_on("guards_are_wider_than_the_largest_frame", &kernels).is_none() {
        return;
    }
    let make = || -> Vec<_> {
        let sizes = [8, 16, 32, 64, 65, 128, 1024, 8192, 8, 32, 64];
        let make = |kib| Stack::new(kib * KIB).unwrap();
        sizes.into_iter().map(make).collect()
    };
    let new = make();
    let layout = Layout::from_size_align(32 << 20, 16).unwrap();
    // SAFETY: the size is not 0, and the block is written before it is freed.
    unsafe {
        let block = Neap.alloc(layout);
        assert!(!block.is_null());
        block.write_bytes(1, layout.size());
        Neap.dealloc(block, layout);
    }
    let stacks: Vec<_> = new.into_iter().chain(make()).collect();
    assert!(stacks.iter().all(is_guarded));
    stacks.iter().for_each(touch);
    for stack in &stacks {
        assert!(!faults(stack.limit().as_ptr()), "usable down to the limit");
    }
    drop(stacks);
    stack::free_cached();
    let counts = totals();
    let guards = counts.guards + counts.mapped_guards + counts.write_guards;
    assert_eq!((guards, counts.lost), (0, 0));
    assert_eq!(HEAP.pages.check(), Ok(()));
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
        Kernel::InSandbox,
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

/// Guards that are mappings have a share, and then there is an error.
#[test]
fn mapped_guards_keep_within_their_share() {
    let kernels = [Kernel::WithoutUserfaultfd, Kernel::InSandbox];
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

/// The program closes descriptors that it does not know, and opens others under their numbers, of
/// the same kind at last.
#[test]
fn guards_come_back_when_their_descriptor_is_closed() {
    let name = "guards_come_back_when_their_descriptor_is_closed";
    if alone_on(name, &[Kernel::WithoutAdvice]).is_none() {
        return;
    }
    let mut stacks: Vec<_> = (0..100).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    let mut programs = Vec::new();
    for round in 0..4 {
        assert!(stacks.iter().all(is_guarded), "{round}");
        // SAFETY: no code of this process has a file above the third open.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        assert!(!stacks.iter().any(is_guarded));
        match round {
            // SAFETY: a plain number; the child of this test inherits them.
            1 => unsafe { (0..64).for_each(|_| _ = libc::dup(0)) },
            2 => programs = (0..200).map(|_| userfaultfd()).collect(),
            _ => {}
        }
        match round {
            0 => stacks.push(Stack::new(512 * KIB).unwrap()),
            _ => _ = stack::free_cached(),
        }
        assert!(programs.iter().all(|&file| is_open(file)));
        assert_eq!(in_child(|| programs.iter().all(|&file| is_open(file))), 0);
        programs.clear();
    }
    assert!(stacks.iter().all(is_guarded));
    drop(stacks);
    stack::free_cached();
    let counts = totals();
    assert_eq!((counts.write_guards, counts.lost), (0, 0));
}

/// A shortage of descriptors passes, however often it was met.
#[test]
fn guards_cost_no_mapping_again_after_a_shortage_of_descriptors() {
    let name = "guards_cost_no_mapping_again_after_a_shortage_of_descriptors";
    if alone_on(name, &[Kernel::WithoutAdvice]).is_none() {
        return;
    }
    let make = |count| -> Vec<_> { (0..count).map(|_| Stack::new(64 * KIB).unwrap()).collect() };
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes one structure of this test's own.
    unsafe { assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0) };
    let set = |rlim_cur| {
        let limit = libc::rlimit { rlim_cur, ..limit };
        // SAFETY: as above.
        unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0) };
    };
    set(0);
    let early = make(200);
    assert_eq!(totals().mapped_guards, early.len());
    set(limit.rlim_cur);
    let late = make(10);
    assert_eq!(totals().write_guards, late.len());
    assert!(early.iter().chain(&late).all(is_guarded));
}

/// A descriptor of the program's own that is ready for use.
fn userfaultfd() -> i32 {
    const USER_MODE_ONLY: i32 = 1;
    const API: u32 = 0xc018_aa3f;
    let mut argument = [0xaa_u64, 0, 0];
    // SAFETY: the argument of this request has three words.
    unsafe {
        let file = [USER_MODE_ONLY, 0]
            .map(|flags| libc::syscall(libc::SYS_userfaultfd, libc::c_long::from(flags)) as i32)
            .into_iter()
            .find(|&file| file >= 0)
            .unwrap();
        let done = libc::syscall(libc::SYS_ioctl, file, API as libc::c_long, &mut argument);
        assert_eq!(done, 0);
        file
    }
}

fn is_open(file: i32) -> bool {
    // SAFETY: a plain number.
    unsafe { libc::fcntl(file, libc::F_GETFD) >= 0 }
}

/// The status of a child that `fork` makes, which is 0 if `works` holds there.
fn in_child(works: impl FnOnce() -> bool) -> i32 {
    // SAFETY: ends the child; waits for it.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(!works()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}

/// It has them at once, and whatever its parent does.
#[test]
fn a_child_has_guards_of_its_own() {
    if alone_on("a_child_has_guards_of_its_own", &[Kernel::WithoutAdvice]).is_none() {
        return;
    }
    let stacks: Vec<_> = (0..100).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let whole = || stacks.iter().all(is_guarded) && descriptors() == before;
    assert_eq!(in_child(|| whole() && in_child(whole) == 0), 0);
    assert!(whole());
}

/// Here Neap does not see the copy: it has guards as soon as it uses a stack.
#[test]
fn a_copy_by_a_system_call_has_guards_of_its_own() {
    let name = "a_copy_by_a_system_call_has_guards_of_its_own";
    if alone_on(name, &[Kernel::WithoutAdvice]).is_none() {
        return;
    }
    let stacks: Vec<_> = (0..100).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    // SAFETY: as fork(2); the child ends; waits for it.
    unsafe {
        let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32;
        if child == 0 {
            let lost = !stacks.iter().any(is_guarded);
            drop(Stack::new(64 * KIB).unwrap());
            let whole = stacks.iter().all(is_guarded);
            libc::_exit(i32::from(!(lost && whole)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
    assert!(stacks.iter().all(is_guarded));
}

/// As a child of `vfork` does that closes what it does not know.
#[test]
fn a_child_that_shares_the_memory_leaves_the_guards() {
    let name = "a_child_that_shares_the_memory_leaves_the_guards";
    if alone_on(name, &[Kernel::WithoutAdvice]).is_none() {
        return;
    }
    extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: of this child, no other file is needed.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        stack::free_cached();
        0
    }
    let stacks: Vec<_> = (0..100).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    let mut room = vec![0u128; 16 << 10];
    // SAFETY: the child has a stack of its own, and this thread waits until it ends.
    unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let top = room.as_mut_ptr_range().end.cast();
        let child = libc::clone(child, top, flags, std::ptr::null_mut());
        assert!(child > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
    let counts = totals();
    assert_eq!((counts.write_guards, counts.mapped_guards), (100, 0));
    assert!(stacks.iter().all(is_guarded));
}

/// While this thread and another one make stacks, whatever they are doing.
#[test]
fn a_handler_of_signals_forks() {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    static STOP: AtomicBool = AtomicBool::new(false);
    static CHILDREN: AtomicU32 = AtomicU32::new(0);
    static IS_CHILD: AtomicBool = AtomicBool::new(false);
    const CHILDREN_WANTED: u32 = 100;
    if alone_on(
        "a_handler_of_signals_forks",
        &[Kernel::Own, Kernel::WithoutAdvice],
    )
    .is_none()
    {
        return;
    }
    extern "C" fn handler(_: libc::c_int) {
        if IS_CHILD.load(Relaxed) || CHILDREN.load(Relaxed) == CHILDREN_WANTED {
            return;
        }
        // SAFETY: `fork` is what this test is about.
        match unsafe { libc::fork() } {
            0 => IS_CHILD.store(true, Relaxed),
            _ => _ = CHILDREN.fetch_add(1, Relaxed),
        }
    }
    let kept: Vec<_> = (0..100).map(|_| Stack::new(64 * KIB).unwrap()).collect();
    let make = || {
        drop(
            (0..20)
                .map(|_| Stack::new(512 * KIB).unwrap())
                .collect::<Vec<_>>(),
        );
        stack::free_cached();
    };
    // SAFETY: no arguments.
    let main = unsafe { libc::pthread_self() };
    let maker = std::thread::spawn(move || {
        while !STOP.load(Relaxed) {
            make();
        }
    });
    // SAFETY: a handler of this type.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    let sender = std::thread::spawn(move || {
        while !STOP.load(Relaxed) {
            // SAFETY: the main thread joins this one.
            unsafe { libc::pthread_kill(main, libc::SIGUSR1) };
            std::thread::sleep(std::time::Duration::from_micros(700));
        }
    });
    while CHILDREN.load(Relaxed) < CHILDREN_WANTED && !IS_CHILD.load(Relaxed) {
        make();
    }
    if IS_CHILD.load(Relaxed) {
        make();
        // SAFETY: ends this child.
        unsafe { libc::_exit(i32::from(!kept.iter().all(is_guarded))) };
    }
    STOP.store(true, Relaxed);
    sender.join().unwrap();
    maker.join().unwrap();
    for _ in 0..CHILDREN_WANTED {
        let mut status = 0;
        // SAFETY: waits for a child.
        assert!(unsafe { libc::waitpid(-1, &mut status, 0) } > 0);
        assert_eq!(status, 0);
    }
}
