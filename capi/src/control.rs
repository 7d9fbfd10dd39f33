//! glibc's control functions.

use core::ffi::c_int;
use neap::front;

/// The parameters of `mallopt` in glibc's `<malloc.h>`: 1 to 4, and -1 to -8.
const PARAMETERS: [core::ops::RangeInclusive<c_int>; 2] = [1..=4, -8..=-1];

/// Gives free memory back to the kernel except `keep` bytes; 1 if any was, else 0.
#[unsafe(no_mangle)]
extern "C" fn malloc_trim(keep: usize) -> c_int {
    c_int::from(front::trim(keep))
}

/// Accepts and ignores the parameters that glibc knows (they tune mechanisms
/// that Neap does not have; its own options are `NEAP_*`) and returns 1; 0 for others.
#[unsafe(no_mangle)]
extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    c_int::from(PARAMETERS.iter().any(|range| range.contains(&parameter)))
}
