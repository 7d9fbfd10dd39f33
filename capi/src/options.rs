//! The options that only libneap.so has: `deepbind` and `children`, and programs that run without
//! Neap because their sanitizer's runtime replaces `malloc`.
//!
//! The heap reads the environment first. It has already warned of a wrong value, and emptied the
//! variable.
//!
//! Two libraries cannot both replace `malloc`: the runtime asks the loader for names while Neap
//! holds its locks, and finds no error in blocks that are not its own. The library cannot leave a
//! process. So it says what it does, takes itself out of `LD_PRELOAD`, and executes the program
//! again, before anything else of the process has run.

use crate::imports::{self, optional};
use crate::loader::keep_deepbind;
use core::ffi::{CStr, c_char};
use neap_heap::kernel;
use neap_heap::os::process;
use neap_shared::control::{self, Value};
use neap_shared::sanitizers;

/// Puts these options into force.
///
/// # Safety
/// - `envp` is the process's environment, and the process has one thread.
pub unsafe fn read(envp: *mut *mut c_char) {
    if process::is_secure() {
        return;
    }
    // SAFETY: the caller's promise.
    for string in unsafe { process::strings_of(envp) } {
        // SAFETY: a C string.
        match parse(unsafe { CStr::from_ptr(string) }.to_bytes()) {
            Some(("deepbind", Value::Choice("keep"))) => keep_deepbind(),
            // SAFETY: the caller's promise.
            Some(("children", Value::Choice("0"))) => unsafe { _ = leave_preload(envp) },
            _ => {}
        }
    }
}

/// The option that an entry of the environment sets, and its value.
fn parse(entry: &[u8]) -> Option<(&'static str, Value<'_>)> {
    let equals = entry.iter().position(|&byte| byte == b'=')?;
    let option = control::find(&entry[..equals])?;
    let value = control::parse(option.kind, &entry[equals + 1..]).ok()?;
    Some((option.name, value))
}

/// Takes this library out of `LD_PRELOAD`, so that children start without it. False if it was not
/// there.
///
/// # Safety
/// - The process has one thread; `envp` is its environment.
unsafe fn leave_preload(envp: *mut *mut c_char) -> bool {
    const NAME: &[u8] = b"LD_PRELOAD=";
    let mut left = false;
    // SAFETY: the caller's promise.
    for string in unsafe { process::strings_of(envp) } {
        // SAFETY: a C string, which no other thread uses while there is one thread.
        let entry = unsafe { CStr::from_ptr(string) }.to_bytes();
        let length = entry.len();
        if entry.starts_with(NAME) && process::is_of_the_kernel(string) {
            // SAFETY: the string's own bytes, on the stack, where the kernel wrote them.
            let text = unsafe { core::slice::from_raw_parts_mut(string.cast::<u8>(), length) };
            let kept = NAME.len() + without_neap(&mut text[NAME.len()..]);
            left |= kept < length;
            // SAFETY: at most the place of the string's own 0.
            unsafe { *string.add(kept) = 0 };
        }
    }
    left
}

/// Removes every item whose file name begins with `libneap` from a list that colons or spaces
/// separate, in place. Returns the new length.
fn without_neap(list: &mut [u8]) -> usize {
    let (mut kept, mut start) = (0, 0);
    while start < list.len() {
        let is_separator = |&byte: &u8| byte == b':' || byte == b' ';
        let length = list[start..].iter().position(is_separator);
        let end = length.map_or(list.len(), |length| start + length);
        if !is_neap(&list[start..end]) {
            let with_separator = (end + 1).min(list.len());
            list.copy_within(start..with_separator, kept);
            kept += with_separator - start;
        }
        start = end + 1;
    }
    kept
}

fn is_neap(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name.starts_with(b"libneap")
}

/// Looks for the function of each runtime.
macro_rules! lookups {
    ($(($init:literal, $name:literal),)*) => {
        [$((optional!($init), $name)),*]
    };
}

/// The sanitizer whose runtime is in the process and replaces `malloc`.
fn sanitizer() -> Option<&'static str> {
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
pub(crate) unsafe fn leave_to_sanitizer(argv: *const *const c_char, envp: *mut *mut c_char) {
    let Some(name) = sanitizer() else { return };
    // musl hands over no arguments.
    let is_known = imports::is_glibc() && !argv.is_null() && !envp.is_null();
    if !is_known || process::is_secure() || is_loader_the_program() {
        return;
    }
    // SAFETY: the caller's promise.
    if !unsafe { leave_preload(envp) } {
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
    unsafe { kernel!(execve, c"/proc/self/exe".as_ptr(), argv, envp) };
}

/// Whether the loader was called with the program as its argument: then the loader is what
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
    // SAFETY: each part is as long as it says.
    unsafe { kernel!(writev, libc::STDERR_FILENO, vector.as_ptr(), vector.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neap_leaves_the_preload_list() {
        let without = |text: &str| {
            let mut list = text.as_bytes().to_vec();
            let kept = without_neap(&mut list);
            std::string::String::from_utf8(list[..kept].to_vec()).unwrap()
        };
        assert_eq!(without("/opt/libneap.so"), "");
        assert_eq!(
            without("/opt/libneap.so:/lib/libasan.so"),
            "/lib/libasan.so"
        );
        assert_eq!(without("/a.so /x/libneap_c.so /b.so"), "/a.so /b.so");
        assert_eq!(
            without("/a.so:/libneapolitan/b.so"),
            "/a.so:/libneapolitan/b.so"
        );
    }
}
