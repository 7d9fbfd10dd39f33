//! libneap.so and libneap.a: the C and C++ names.
//!
//! Every exported symbol is in one of these files, and every hot one inlines [`neap_heap::malloc`]
//! or a neighbouring module directly:
//!
//! | file | names |
//! |---|---|
//! | `c.rs` | `malloc` `calloc` `realloc` `free` and their relatives, aligned and sized ones among them, as glibc 2.36 behaves; the same under glibc's internal `__libc_*` names |
//! | `report.rs` | `mallinfo` `mallinfo2` `malloc_info` `malloc_stats`; `malloc_trim` `mallopt` |
//! | `cxx/` | the 20 replaceable forms of `operator new` and `operator delete` |
//! | `process.rs` | `unshare` `setns` `capset` `fork` `forkpty`: the purge thread makes way; `_exit` `_Exit`: statistics are written on this way out as well |
//! | `copies.rs` | `clone` `_Fork` `syscall`: copies of the process past `fork`, and sandboxes entered by number |
//! | `at_fork.rs` | `__register_atfork`, which glibc's `pthread_atfork` calls: Neap's handlers come first |
//! | `signals.rs` | `sigaction` `signal`: the report of a guarded block comes before the program's own handler |
//! | `stack.rs` | `neap_stack_*`: stacks for coroutines |
//! | `start.rs` | the constructor; `neap_start_purge_thread` `neap_version` |
//! | `watch.rs` | `mmap` `mmap64` `munmap` `mremap` `shmat` `madvise` `ioctl` `prctl`: calls that map over the heap or unmap its pages, fill them or advise on them, or enter a sandbox |
//! | `loader.rs` | `dlopen`, with `RTLD_DEEPBIND` taken out; what the library asks the loader |
//! | `imports.rs` | no name: what the library takes from the C library |
//! | `options.rs` | no name: the options `deepbind` and `children`, and programs with a sanitizer |
//!
//! `errno` follows one rule: a C entry point that fails to get memory sets `ENOMEM`. Nothing else
//! changes it, because the heap preserves it.
//!
//! The shipped build is `panic = "abort"` and then `no_std`; other builds link
//! `std`, so that plain `cargo build` and `cargo test` work.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(not(all(panic = "abort", feature = "archive")))]
mod at_fork;
mod c;
mod copies;
mod cxx;
mod imports;
mod loader;
mod options;
mod process;
mod report;
#[cfg(not(all(panic = "abort", feature = "archive")))]
mod signals;
mod stack;
mod start;
mod watch;
