//! Where the heap's own code is.

use core::ops::Range;

// The linker's names for the ends of the section. `capture` is in it, so it always exists.
unsafe extern "C" {
    static __start_neap_text: u8;
    static __stop_neap_text: u8;
}

/// The functions by which a program enters the heap, as far as they are not inlined into its code.
/// In the archive `libneap.a`, all code of the library.
pub fn own_code() -> Range<usize> {
    (&raw const __start_neap_text).addr()..(&raw const __stop_neap_text).addr()
}
