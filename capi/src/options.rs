//! The options that only libneap.so has: `deepbind` and `children`. The heap reads the environment
//! first. It has already warned of a wrong value, and emptied the variable.

use crate::dlopen;
use core::ffi::{CStr, c_char};
use neap_heap::os::process;
use neap_shared::control::{self, Value};

/// Puts these options into force.
///
/// # Safety
/// - `envp` is the process's environment, and the process has one thread.
pub unsafe fn read(envp: *mut *mut c_char) {
    if envp.is_null() || process::is_secure() {
        return;
    }
    let mut next = envp;
    // SAFETY: an array of C strings that ends in null.
    while unsafe { !(*next).is_null() } {
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(*next) }.to_bytes();
        match parse(entry) {
            Some(("deepbind", Value::Choice("keep"))) => dlopen::keep_deepbind(),
            // SAFETY: the caller's promise.
            Some(("children", Value::Choice("0"))) => unsafe { _ = leave_preload(envp) },
            _ => {}
        }
        // SAFETY: not past the null.
        next = unsafe { next.add(1) };
    }
}

/// The option that an entry of the environment sets, and its value.
fn parse(entry: &[u8]) -> Option<(&'static str, Value<'_>)> {
    let equals = entry.iter().position(|&byte| byte == b'=')?;
    let option = control::find(&entry[..equals])?;
    let value = control::parse(option.kind, &entry[equals + 1..]).ok()?;
    Some((option.name, value))
}

/// What [`leave_preload`] took out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// This library was not in `LD_PRELOAD`.
    Nothing,
    /// This library.
    Neap,
}

/// Takes this library out of `LD_PRELOAD`, so that children start without it.
///
/// # Safety
/// - The process has one thread; `envp` is its environment.
pub(crate) unsafe fn leave_preload(envp: *mut *mut c_char) -> Left {
    let mut left = Left::Nothing;
    const NAME: &[u8] = b"LD_PRELOAD=";
    let mut next = envp;
    // SAFETY: the environment is an array of C strings that ends in null.
    while unsafe { !(*next).is_null() } {
        // SAFETY: as above; no other thread uses the string while there is one thread.
        let entry = unsafe { CStr::from_ptr(*next) };
        let length = entry.to_bytes().len();
        // SAFETY: as above.
        if entry.to_bytes().starts_with(NAME) && process::is_of_the_kernel(unsafe { *next }) {
            // SAFETY: the string's own bytes, on the stack, where the kernel wrote them.
            let text = unsafe { core::slice::from_raw_parts_mut((*next).cast::<u8>(), length) };
            let kept = NAME.len() + without_neap(&mut text[NAME.len()..]);
            if kept < length {
                left = Left::Neap;
            }
            // SAFETY: at most the place of the string's own 0.
            unsafe { *(*next).add(kept) = 0 };
        }
        // SAFETY: not past the null.
        next = unsafe { next.add(1) };
    }
    left
}

/// Removes every item whose file name begins with `libneap` from a list that colons or spaces
/// separate, in place. Returns the new length.
fn without_neap(list: &mut [u8]) -> usize {
    let (mut kept, mut start) = (0, 0);
    while start < list.len() {
        let is_separator = |&byte: &u8| byte == b':' || byte == b' ';
        let end = start
            + list[start..]
                .iter()
                .position(is_separator)
                .unwrap_or(list.len() - start);
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
