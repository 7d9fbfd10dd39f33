//! The cost of a stack walk: ns per walk at two depths, with all rules cached and with none; how
//! many frames each way finds; how much stack it takes.
//!
//! `cargo run --release -p neap-instruments --example unwind_cost`, and for the chain of frame
//! pointers the same with `RUSTFLAGS=-Cforce-frame-pointers=yes`.

use neap_instruments::peek::{self, Peek};
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

const DEPTHS: [usize; 2] = [17, 49];
const MOST: usize = 64;
const ROUNDS: usize = 2000;

/// Calls `top` below `frames` more frames than the caller has.
#[inline(never)]
fn on_top(frames: usize, top: &mut dyn FnMut()) {
    if frames == 0 {
        top();
    } else {
        on_top(black_box(frames - 1), top);
    }
    black_box(());
}

/// Frames under `main`, and those of the walk's own callers.
fn frames_below() -> usize {
    let mut frames = [0; MOST];
    neap_instruments::unwind::capture(black_box(&mut frames))
}

/// Median of the ns that `walk` takes, and how many frames it finds.
fn price(before: impl Fn(), walk: impl Fn() -> usize) -> (u128, usize) {
    let mut times: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            before();
            let start = Instant::now();
            black_box(walk());
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    (times[ROUNDS / 2], walk())
}

fn line(name: &str, depth: usize, before: impl Fn(), walk: impl Fn() -> usize) {
    on_top(depth, &mut || {
        let (ns, found) = price(&before, &walk);
        println!("{name:32} {depth:3} frames and main's: {ns:6} ns, {found} found");
    });
}

fn libgcc() -> usize {
    let mut frames = [null_mut(); MOST];
    // SAFETY: room for as many as are asked for.
    unsafe { libc::backtrace(frames.as_mut_ptr(), MOST as i32) as usize }
}

const STACK: usize = 256 << 10;

/// Bytes of a fresh stack that a thread writes which runs `body`.
fn stack_of(body: extern "C" fn(*mut c_void) -> *mut c_void) -> usize {
    // SAFETY: a mapping of our own; the thread has ended when it is read.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let stack = libc::mmap(null_mut(), STACK, access, flags, -1, 0);
        assert_ne!(stack, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(stack.cast::<u8>(), STACK).fill(0xa5);
        let mut attributes = std::mem::zeroed();
        let mut thread = 0;
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstack(&mut attributes, stack, STACK);
        assert_eq!(
            libc::pthread_create(&mut thread, &attributes, body, null_mut()),
            0
        );
        libc::pthread_join(thread, null_mut());
        let bytes = std::slice::from_raw_parts(stack.cast::<u8>(), STACK);
        STACK - bytes.iter().take_while(|byte| **byte == 0xa5).count()
    }
}

extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
    null_mut()
}

extern "C" fn one_walk(_: *mut c_void) -> *mut c_void {
    neap_instruments::unwind::capture(black_box(&mut [0; MOST]));
    null_mut()
}

/// Reading a word of another page in the two ways of `os::peek`.
fn reading() {
    let far_away = Box::new([1_usize; 4096]);
    let address = std::ptr::from_ref(&far_away[2048]).addr();
    let near = || Peek::beside(&address).near(black_box(address)).unwrap();
    let far = || usize::from_ne_bytes(peek::far(black_box(address)).unwrap());
    println!(
        "a word of another page: asked first {} ns",
        price(|| {}, near).0
    );
    println!(
        "                        copied by the kernel {} ns",
        price(|| {}, far).0
    );
}

fn main() {
    libgcc();
    reading();
    for depth in DEPTHS {
        line("frame pointers alone", depth, || {}, frames_below);
    }
    neap_instruments::unwind::prepare();
    for depth in DEPTHS {
        line(
            "tables, nothing met before",
            depth,
            neap_instruments::unwind::forget,
            frames_below,
        );
        line("tables, all met before", depth, || {}, frames_below);
        line("libgcc's backtrace", depth, || {}, libgcc);
    }
    neap_instruments::unwind::forget();
    let walk = stack_of(one_walk);
    println!(
        "stack: {} bytes beyond a thread's {}",
        walk - stack_of(nothing),
        stack_of(nothing)
    );
}
