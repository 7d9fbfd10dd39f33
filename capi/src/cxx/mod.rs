//! The 20 replaceable forms of C++'s `operator new` and `operator delete`.
//!
//! `new.rs` and `delete.rs` define the symbols; their fast paths are `malloc` and `free`. The
//! out-of-memory path needs the C++ runtime. This library is not linked to it, so `replaced.rs`
//! finds it in the running process:
//!
//! - A throwing `new` enters `exhausted`. It calls the new-handler and
//!   retries until an allocation succeeds or the handler throws. Without a handler it throws
//!   `std::bad_alloc`. The only Rust frame below a handler or a throw is the operator's own, which
//!   has nothing to clean up.
//! - A nothrow `new` calls the C++ runtime's nothrow form, which calls this library's throwing form
//!   and catches.
//!
//! A program that replaces only some forms (`replaced.rs`) gets what the standard requires: the
//! other forms behave as if they called the replaced ones.

mod delete;
mod new;
pub(crate) mod replaced;
