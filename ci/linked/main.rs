//! A Rust program whose `malloc` is the archive's. Both contain parts of Rust's own libraries.
use std::ffi::{CStr, c_char, c_void};

unsafe extern "C" {
    fn neap_version() -> *const c_char;
    fn malloc_usable_size(block: *mut c_void) -> usize;
}

fn main() {
    let mut bytes = vec![1u8; 1000];
    // SAFETY: a block of this heap, which `bytes` holds.
    let usable = unsafe { malloc_usable_size(bytes.as_mut_ptr().cast()) };
    assert!(usable >= bytes.len(), "the vector is in this heap");
    let sums: Vec<_> = (0..8)
        .map(|i| std::thread::spawn(move || (0..100_000u64).map(|n| vec![n; i].len()).sum::<usize>()))
        .collect();
    assert_eq!(sums.into_iter().map(|sum| sum.join().unwrap()).sum::<usize>(), 2_800_000);
    assert!(std::panic::catch_unwind(|| panic!("caught")).is_err());
    // SAFETY: a C string that stays.
    let version = unsafe { CStr::from_ptr(neap_version()) };
    println!("Neap {}", version.to_str().unwrap());
}
