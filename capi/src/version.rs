//! The version of Neap.

use core::ffi::{CStr, c_char};

/// The version, from the crate's manifest, as a C string.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version holds no NUL"),
    };

/// The version of the library, such as `0.1.0`; never null, never freed.
#[unsafe(no_mangle)]
extern "C" fn neap_version() -> *const c_char {
    VERSION.as_ptr()
}
