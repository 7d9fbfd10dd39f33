//! A trace leaves out the heap's own calls: the outermost one and all that it called, but nothing
//! that a signal handler called.

use neap_instruments::unwind::{capture, prepare};
use std::hint::black_box;
use std::sync::Mutex;

static SEEN: Mutex<Vec<u64>> = Mutex::new(Vec::new());

// The ends of the section that the functions of the program are in.
unsafe extern "C" {
    static __start_program_text: u8;
    static __stop_program_text: u8;
}

fn is_programs(frame: u64) -> bool {
    let program = (&raw const __start_program_text).addr()..(&raw const __stop_program_text).addr();
    program.contains(&(frame as usize))
}

fn look() {
    let mut frames = [0; 64];
    let taken = capture(&mut frames);
    *SEEN.lock().unwrap() = frames[..taken].to_vec();
}

/// In the heap's place.
#[inline(never)]
#[unsafe(link_section = "neap_text")]
fn enters(then: fn()) {
    black_box(then)();
    black_box(());
}

#[inline(never)]
#[unsafe(link_section = "program_text")]
fn program() {
    enters(look);
    black_box(());
}

#[inline(never)]
fn interrupted() {
    // SAFETY: a signal that has a handler.
    unsafe { libc::raise(libc::SIGUSR1) };
    black_box(());
}

#[unsafe(link_section = "program_text")]
extern "C" fn handler(_signal: libc::c_int) {
    enters(look);
    black_box(());
}

#[test]
fn own_calls_are_left_out_and_a_handlers_are_not() {
    prepare();
    program();
    let plain = SEEN.lock().unwrap().clone();
    assert!(
        plain.first().is_some_and(|&frame| is_programs(frame)),
        "{plain:x?}"
    );
    let address = handler as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler takes no lock that the test holds meanwhile.
    unsafe { libc::signal(libc::SIGUSR1, address) };
    enters(interrupted);
    let within = SEEN.lock().unwrap().clone();
    assert!(
        within.first().is_some_and(|&frame| is_programs(frame)),
        "{within:x?}"
    );
    assert_eq!(
        within.iter().filter(|&&frame| is_programs(frame)).count(),
        1
    );
}
