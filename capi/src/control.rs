//! glibc's control functions.

use core::ffi::c_int;
use neap_heap::reclaim::round;

/// The parameters of `mallopt` in glibc's `<malloc.h>`: 1 to 4, and -1 to -8.
const PARAMETERS: [core::ops::RangeInclusive<c_int>; 2] = [1..=4, -8..=-1];

/// Gives free memory back to the kernel; 1 if any was, else 0. glibc keeps `_keep` bytes at the top
/// of its heap; Neap has no top.
#[unsafe(no_mangle)]
extern "C" fn malloc_trim(_keep: usize) -> c_int {
    c_int::from(round::purge_all() > 0)
}

/// `M_TRIM_THRESHOLD`: free memory beyond this many bytes goes back to the kernel.
const TRIM_THRESHOLD: c_int = -1;

/// Accepts the parameters that glibc knows and returns 1; 0 for others. `M_TRIM_THRESHOLD` sets how
/// many bytes of free pages stay resident, -1 all; the others are ignored, because they tune
/// mechanisms that Neap does not have (its own options are `NEAP_*`).
#[unsafe(no_mangle)]
extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    if parameter == TRIM_THRESHOLD {
        // As in glibc: a negative number is a very large one.
        round::keep_free(value as isize as usize);
    }
    c_int::from(PARAMETERS.iter().any(|range| range.contains(&parameter)))
}
