//! Frame pointers and return addresses that lead nowhere: the walk ends, and keeps the frames that
//! it found before.

use super::library::{Build, Library, Top};
use super::{begins, look, look_alone, seen};
use proptest::prelude::*;
use std::ffi::CStr;
use std::ptr::null_mut;

/// A page that cannot be read.
fn hole() -> usize {
    // SAFETY: a new mapping.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(null_mut(), 1 << 16, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    page.addr()
}

/// A part of a live frame in which no return address stands. What else is on a stack may look like
/// a frame by chance.
struct Zeros([u64; 2048]);

/// Words that no frame pointer and no return address is.
fn lies(library: Library, stack: &Zeros) -> Vec<usize> {
    let here = std::ptr::from_ref(&stack.0[1024]).addr();
    let text = library.symbol::<usize>(c"after_no_call");
    let page = hole();
    vec![
        0,
        1,
        8,
        4096,
        usize::MAX,
        usize::MAX - 7,
        1 << 47,
        1 << 63,
        here,
        here + 1,
        here - 4096,
        page,
        page + 8,
        text,
        text - 1,
        0xdead_beef_dead_beef,
    ]
}

/// The frames when `name` of the library lies with `word`.
fn walk(library: Library, name: &CStr, word: usize) -> Vec<u64> {
    let top: Top = look_alone;
    library.special(name, top, word);
    let (ours, _) = seen();
    assert!(library.is_in(ours[0], name), "{name:?} {word:x}: {ours:x?}");
    ours
}

#[test]
fn a_wrong_frame_pointer_ends_the_walk() {
    let Some(library) = Library::new(Build::Tables) else {
        return;
    };
    let zeros = Zeros([0; 2048]);
    // More than a frame has. What is there may look like code by chance, but is not read.
    let far_up = std::ptr::from_ref(&zeros).addr() + (2 << 20);
    for word in lies(library, &zeros).into_iter().chain([far_up]) {
        assert_eq!(walk(library, c"with_fp", word).len(), 1, "{word:x}");
    }
}

#[test]
fn a_wrong_return_address_ends_the_walk() {
    let Some(library) = Library::new(Build::Tables) else {
        return;
    };
    let zeros = Zeros([0; 2048]);
    for word in lies(library, &zeros) {
        assert_eq!(walk(library, c"with_return", word).len(), 1, "{word:x}");
    }
}

#[test]
fn a_table_knows_better_than_a_wrong_frame_pointer() {
    let Some(library) = Library::new(Build::Tables) else {
        return;
    };
    let zeros = Zeros([0; 2048]);
    for word in lies(library, &zeros) {
        library.special(c"with_fp_told", look, word);
        let (ours, theirs) = seen();
        assert!(ours.len() > 3);
        assert_eq!(ours, theirs, "{word:x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any word of the stack as a frame pointer: what is there was once a frame, or looks like one.
    /// No fault, no endless walk, and the true frames come first.
    #[test]
    fn any_word_may_be_a_frame_pointer(offset in 0_usize..40_000, low in 0_usize..8) {
        let Some(library) = super::loaded(Build::Both) else {
            return Ok(());
        };
        let local = 0_u64;
        let here = std::ptr::from_ref(&local).addr() & !7;
        let word = here - 20_000 + offset / 8 * 8 + if low == 0 { 4 } else { 0 };
        for name in [c"with_fp", c"with_return"] {
            let ours = walk(library, name, word);
            prop_assert!(ours.len() < super::MOST);
        }
    }
}

/// Code that was made at run time, with a frame pointer:
/// `push rbp; mov rbp, rsp; call rdi; pop rbp; ret`.
const MADE: [u8; 9] = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3, 0x90];

#[test]
fn code_made_at_run_time_is_walked_through() {
    let Some(library) = Library::new(Build::Tables) else {
        return;
    };
    // SAFETY: a new mapping, written within its bounds.
    let page = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(null_mut(), 4096, access, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<u8>().copy_from(MADE.as_ptr(), MADE.len());
        page
    };
    // SAFETY: code of this type was put there.
    let made = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(Top)>(page) };
    library.descend(5, look);
    let (straight, _) = seen();
    for _ in 0..2 {
        made(look);
        let (ours, theirs) = seen();
        assert_eq!(ours[0], page.addr() as u64 + 6);
        assert!(begins(&ours, &theirs), "libgcc goes as far as the tables");
        // From this function on it is the stack of any test.
        let end = straight.len() - 6 - 1;
        assert!(ours.len() >= end, "{ours:x?}\n{straight:x?}");
        assert_eq!(
            ours[ours.len() - (end - 1)..],
            straight[straight.len() - (end - 1)..]
        );
    }
}
