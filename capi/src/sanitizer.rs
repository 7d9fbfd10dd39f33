//! Programs that a compiler built with a sanitizer whose runtime replaces `malloc`. Two libraries
//! cannot both do that: the runtime asks the loader for names while Neap holds its locks, and finds
//! no error in blocks that are not its own. Such a program runs without Neap.
//!
//! The library cannot leave a process. So it says what it does, takes itself out of `LD_PRELOAD`,
//! and executes the program again, before anything else of the process has run.

use crate::imports;
use crate::optional::optional;
use crate::options;
use core::ffi::{CStr, c_char};
use neap_heap::os::{call, process};
use neap_shared::sanitizers;

/// Looks for the function of each runtime.
macro_rules! lookups {
    ($(($init:literal, $name:literal),)*) => {
        [$((optional!($init), $name)),*]
    };
}

/// The sanitizer whose runtime is in the process and replaces `malloc`.
fn name() -> Option<&'static str> {
    let runtimes = sanitizers!(lookups);
    let found = runtimes.iter().find(|(init, _)| !init.is_null());
    found.map(|(_, name)| *name)
}

/// Executes the program again without this library, if it has a sanitizer's runtime and this
/// library was loaded by `LD_PRELOAD` before it. Returns if that is not so, or not possible.
///
/// # Safety
/// - The arguments are those of a constructor that runs first; the process has one thread. This
///   library [serves](crate::loader::serves) it.
pub(crate) unsafe fn leave(argv: *const *const c_char, envp: *mut *mut c_char) {
    let Some(name) = name() else { return };
    // musl hands over no arguments.
    let is_known = imports::is_glibc() && !argv.is_null() && !envp.is_null();
    if !is_known || process::is_secure() || is_loader_the_program() {
        return;
    }
    // SAFETY: the caller's promise.
    if unsafe { options::leave_preload(envp) } == options::Left::Nothing {
        return;
    }
    // SAFETY: null, or the program's name, which ends in 0.
    let program = unsafe { (*argv).as_ref() }.map(|first| unsafe { CStr::from_ptr(first) });
    say([
        b"neap: ",
        program.map_or(b"this program", CStr::to_bytes),
        b" is built with ",
        name.as_bytes(),
        b", which needs a malloc of its own: it runs without Neap\n",
    ]);
    // SAFETY: the process's own arguments and environment, which end in null.
    unsafe {
        let [argv, envp] = [argv.expose_provenance(), envp.expose_provenance()];
        let program = c"/proc/self/exe".as_ptr().expose_provenance();
        call(libc::SYS_execve, [program, argv, envp, 0])
    };
}

/// Whether somebody called the loader with the program as its argument: then the loader is what
/// would be executed, with other arguments than it had.
fn is_loader_the_program() -> bool {
    process::auxiliary(libc::AT_BASE) == 0
}

/// Writes to standard error by system calls, for the C library's function is the runtime's.
fn say(parts: [&[u8]; 5]) {
    let vector = parts.map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    let place = vector.as_ptr().expose_provenance();
    let arguments = [libc::STDERR_FILENO as usize, place, vector.len(), 0];
    // SAFETY: each part is as long as it says.
    unsafe { call(libc::SYS_writev, arguments) };
}
