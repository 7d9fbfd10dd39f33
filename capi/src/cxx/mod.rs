//! The 20 replaceable forms of C++'s `operator new` and `operator delete`.
//!
//! `new.rs` and `delete.rs` hold the names; their fast paths are `malloc` and
//! `free`. What happens when memory runs out needs the C++ runtime, which this
//! library is not linked to and finds in the running process (`runtime.rs`):
//!
//! - a throwing `new` enters `exhausted` (one file a machine), which calls the new-handler and
//!   retries until memory is found, the handler throws, or there is no handler
//!   and `std::bad_alloc` is thrown. No Rust code stands below a handler or a throw but
//!   the operator itself, whose frame holds nothing to clean up;
//! - a nothrow `new` hands over to the C++ runtime's own, which calls our
//!   throwing one and catches.
//!
//! A program that replaces only some forms (`replaced.rs`) gets the standard's rule: the
//! other forms behave as if they called the replaced ones.

mod delete;
mod new;
mod replaced;
mod runtime;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod machine;
