//! Exits without exit handlers. Shells and forking servers end by `_exit`, and `NEAP_STATS` must
//! cover them as well.

use core::ffi::c_int;
use neap_heap::os::process;
use neap_instruments::statistics;

/// Ends the process at once, after writing the requested statistics.
#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    statistics::ends_at_once();
    process::exit_at_once(status)
}

/// C99's name for [`_exit`].
#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
