//! corosensei's coroutines on stacks of Neap.

use corosensei::{Coroutine, CoroutineResult};
use neap::stack::{Stack, figures};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BYTES: usize = 64 << 10;

fn stack() -> Stack {
    Stack::new(BYTES).unwrap()
}

#[test]
fn values_go_in_and_out() {
    let mut squares = Coroutine::with_stack(stack(), |yielder, mut input: u64| {
        for _ in 0..100 {
            input = yielder.suspend(input * input);
        }
        "done"
    });
    for number in 0..100 {
        assert_eq!(
            squares.resume(number),
            CoroutineResult::Yield(number * number)
        );
    }
    assert_eq!(squares.resume(0), CoroutineResult::Return("done"));
}

#[test]
fn the_smallest_stack_will_do() {
    let stack = Stack::new(8 << 10).unwrap();
    let mut coroutine = Coroutine::with_stack(stack, |yielder, ()| yielder.suspend(7));
    assert_eq!(coroutine.resume(()), CoroutineResult::Yield(7));
    assert_eq!(coroutine.resume(()), CoroutineResult::Return(()));
}

/// A panic leaves the coroutine through its stack's upper end, running destructors on the way.
#[test]
fn panics_unwind_through_a_stack() {
    struct Mark(Arc<AtomicBool>);
    impl Drop for Mark {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let mark = Mark(dropped.clone());
    let mut coroutine: Coroutine<(), (), (), Stack> =
        Coroutine::with_stack(stack(), |yielder, ()| {
            let _mark = mark;
            yielder.suspend(());
            panic!("from within");
        });
    assert_eq!(coroutine.resume(()), CoroutineResult::Yield(()));
    assert!(!dropped.load(Ordering::Relaxed));
    let caught = catch_unwind(AssertUnwindSafe(|| coroutine.resume(())));
    assert_eq!(
        *caught.unwrap_err().downcast::<&str>().unwrap(),
        "from within"
    );
    assert!(dropped.load(Ordering::Relaxed));
}

/// One that is dropped half-way is unwound, and its stack is the next one's.
#[test]
fn a_dropped_coroutine_gives_its_stack_back() {
    let before = figures().created;
    for round in 0..1000 {
        let mut coroutine = Coroutine::with_stack(stack(), move |yielder, ()| {
            let text = format!("kept across a switch: {round}");
            yielder.suspend(text.len());
        });
        assert!(matches!(
            coroutine.resume(()),
            CoroutineResult::Yield(23..=26)
        ));
    }
    // Other tests of this process have stacks of their own.
    assert!(figures().created - before < 100);
    assert!(figures().recycled > 900);
}

/// A parked coroutine keeps what it has on its stack when what is below is given back.
#[test]
fn a_trimmed_coroutine_goes_on() {
    let mut deep = Coroutine::with_stack(stack(), |yielder, ()| {
        let local = [7u8; 1000];
        let filled = dive(40);
        let pointer: *const u8 = std::ptr::from_ref(&local).cast();
        yielder.suspend(pointer.addr());
        filled + usize::from(local[999])
    });
    let CoroutineResult::Yield(pointer) = deep.resume(()) else {
        panic!("it ended");
    };
    let top = (pointer / BYTES + 1) * BYTES;
    let top = std::ptr::NonNull::new(top as *mut u8).unwrap();
    // SAFETY: the coroutine keeps the stack; this value is forgotten below. It is parked, and
    // `suspend` and what it calls need less than a page and a half below its locals.
    let given = unsafe {
        let stack = Stack::from_raw(top);
        let given = stack.trim((pointer - 6144) as *const u8);
        assert_eq!(stack.into_raw(), top);
        given
    };
    assert!(given >= 32 << 10, "{given}");
    assert_eq!(deep.resume(()), CoroutineResult::Return(40 + 7));
}

/// Uses about a KiB of stack a level.
#[inline(never)]
fn dive(depth: usize) -> usize {
    let local = std::hint::black_box([1u8; 1024]);
    if depth == 0 {
        0
    } else {
        usize::from(local[depth]) + dive(depth - 1)
    }
}

/// In a program of Rust, whose standard library has a handler of its own.
#[test]
fn an_overflow_is_reported() {
    is_reported("an_overflow_is_reported", 0, |stack, _| {
        let mut coroutine =
            Coroutine::<(), (), usize, Stack>::with_stack(stack, |_, ()| dive(1000));
        coroutine.resume(());
    });
}

/// Writes the lowest byte of a frame without stack probes. Some functions of the C library have
/// such frames, and `to_socket_addrs` can call one of 8,216 bytes.
#[cfg(target_arch = "x86_64")]
fn leap(frame: usize) {
    // SAFETY: writes to a guard, or where this test sees that no guard is.
    unsafe {
        std::arch::asm!(
            "mov {top}, rsp",
            "sub rsp, {frame}",
            "mov byte ptr [rsp], 1",
            "mov rsp, {top}",
            top = out(reg) _,
            frame = in(reg) frame,
        );
    }
}

/// Calls [`leap`] less than 2 KiB above `limit`.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn descend(limit: usize, frame: usize) {
    let local = std::hint::black_box([1_u8; 256]);
    match (&raw const local).addr() - limit < 2048 {
        true => leap(frame),
        false => descend(limit, frame),
    }
    std::hint::black_box(&local);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_frame_without_probes_is_reported() {
    for frame in [8216, 18_600, 33_312] {
        is_reported(
            "a_frame_without_probes_is_reported",
            frame,
            |stack, frame| {
                // Those below are in use.
                let below: Vec<_> = (0..16)
                    .map(|_| Stack::new(stack.bytes()).unwrap())
                    .collect();
                let limit = stack.limit().addr().get();
                let mut coroutine =
                    Coroutine::<(), (), (), Stack>::with_stack(stack, move |_, ()| {
                        descend(limit, frame);
                    });
                coroutine.resume(());
                drop(below);
            },
        );
    }
}

/// Runs a test of this file again with this frame, as a process that must die in the guard of the
/// diver's stack.
fn is_reported(name: &str, frame: usize, overflow: impl FnOnce(Stack, usize)) {
    const MARK: &str = "COROUTINES_TEST_OVERFLOW";
    if let Ok(frame) = std::env::var(MARK) {
        assert!(neap::stack::report_overflows());
        let stack = Stack::new(32 << 10).unwrap();
        stack.set_owner(c"the diver");
        return overflow(stack, frame.parse().unwrap());
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(MARK, frame.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{text}");
    assert!(text.contains("neap: stack overflow at 0x"), "{text}");
    assert!(text.contains(" bytes (owner \"the diver\")\n"), "{text}");
}

/// Return addresses as Neap finds them, and as libgcc does, but for the two innermost: those differ
/// by where they were asked.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[inline(never)]
fn frames() -> [Vec<u64>; 2] {
    let (mut ours, mut theirs) = ([0; 256], [std::ptr::null_mut(); 256]);
    let found = neap_instruments::unwind::capture(&mut ours);
    // SAFETY: room for as many as are asked for.
    let count = unsafe { libc::backtrace(theirs.as_mut_ptr(), 256) } as usize;
    let theirs = theirs[1..count].iter().map(|frame| frame.addr() as u64);
    [ours[1..found].to_vec(), theirs.collect()]
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn a_walk_leads_from_a_coroutine_to_who_resumed_it() {
    neap_instruments::unwind::prepare();
    let inner = || Coroutine::<(), (), _, _>::with_stack(stack(), |_, ()| frames());
    let mut outer =
        Coroutine::<(), (), _, _>::with_stack(stack(), move |_, ()| inner().resume(()).as_return());
    let [ours, theirs] = outer.resume(()).as_return().unwrap().unwrap();
    let [outside, _] = frames();
    assert!(ours.len() > outside.len());
    assert_eq!(ours, theirs);
}
