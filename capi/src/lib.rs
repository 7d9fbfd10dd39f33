//! libneap.so and libneap.a: the C and C++ names.
//!
//! Every exported symbol is in one of these files, and every hot one inlines [`neap_heap::malloc`]
//! or a neighbouring module directly:
//!
//! | file | names |
//! |---|---|
//! | `archive.rs` | no name: what `libneap.a` takes from the program that it is linked into |
//! | `c.rs` | `malloc` `calloc` `realloc` `free` and their relatives, as glibc 2.36 behaves |
//! | `aligned.rs` | `memalign` `posix_memalign` `aligned_alloc` `valloc` `pvalloc` |
//! | `sized.rs` | C23's `free_sized` and `free_aligned_sized` |
//! | `control.rs`, `report.rs` | `malloc_trim` `mallopt`; `mallinfo` `mallinfo2` `malloc_info` `malloc_stats` |
//! | `libc_names.rs` | the same under glibc's internal `__libc_*` names |
//! | `cxx/` | the 20 replaceable forms of `operator new` and `operator delete` |
//! | `alone.rs` | `unshare` `setns` `capset` `fork` `forkpty`: the purge thread makes way |
//! | `copies/` | `clone` `_Fork` `syscall`: copies of the process past `fork`, and sandboxes entered by number |
//! | `dlopen/` | `dlopen`, with `RTLD_DEEPBIND` taken out |
//! | `exit.rs` | `_exit` `_Exit`: statistics are written on this way out as well |
//! | `at_fork.rs` | `__register_atfork`, which glibc's `pthread_atfork` calls: Neap's handlers come first |
//! | `imports.rs` | no name: what the library takes from the C library where glibc's versions and musl differ |
//! | `optional.rs` | no name: names that not every process has |
//! | `options.rs` | no name: the options `deepbind` and `children` |
//! | `streams.rs` | no name: the lock that glibc's `fork` takes after Neap's |
//! | `signals.rs` | `sigaction` `signal`: the report of a guarded block comes before the program's own handler |
//! | `stack.rs` | `neap_stack_*`: stacks for coroutines |
//! | `start.rs` | the constructor |
//! | `version.rs` | `neap_version` |
//! | `watch.rs` | `mmap` `mmap64` `munmap` `mremap` `shmat` `madvise` `ioctl` `prctl`: calls that map over the heap or unmap its pages, fill them or advise on them, or enter a sandbox |
//!
//! `errno` follows one rule: a C entry point that fails to get memory sets `ENOMEM`. Nothing else
//! changes it, because the heap preserves it.
//!
//! The shipped build is `panic = "abort"` and then `no_std`; other builds link
//! `std`, so that plain `cargo build` and `cargo test` work.
#![cfg_attr(panic = "abort", no_std)]

mod aligned;
mod alone;
#[cfg(all(panic = "abort", feature = "archive"))]
mod archive;
#[cfg(not(all(panic = "abort", feature = "archive")))]
mod at_fork;
mod c;
mod control;
mod copies;
mod cxx;
mod dlopen;
mod errno;
mod exit;
mod imports;
mod libc_names;
mod loader;
mod next;
mod optional;
mod options;
#[cfg(panic = "abort")]
mod panic;
mod report;
#[cfg(not(all(panic = "abort", feature = "archive")))]
mod sanitizer;
#[cfg(not(all(panic = "abort", feature = "archive")))]
mod signals;
mod sized;
mod stack;
mod start;
mod streams;
mod version;
mod watch;
