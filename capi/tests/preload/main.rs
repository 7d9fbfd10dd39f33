//! The library from outside: what it exports, how each name behaves, what it
//! survives. C and C++ programs are compiled here and run under the preload.

mod c_library;
mod cgroup;
mod classes;
mod cxx;
mod entry_points;
mod exhaustion;
mod faults;
mod fork;
mod guard;
mod hardened;
#[cfg(target_arch = "x86_64")]
mod injected;
mod late;
mod limits;
mod measures;
mod misuse;
#[path = "../../../ci/nameable.rs"]
mod nameable;
#[path = "../../../ci/older_kernel.rs"]
mod older_kernel;
mod operators;
mod places;
mod process;
mod purge;
mod scarce;
mod semantics;
#[path = "../../../ci/skips.rs"]
mod skips;
mod stacks;
mod start;
mod status_page;
mod support;
mod symbols;
mod tagged;
mod torture;
#[cfg(target_arch = "x86_64")]
mod tracer;
