//! The only layer that speaks to the kernel.
//!
//! | file | contents |
//! |---|---|
//! | `linux` | the trait [`Os`]: what the page heap needs of an operating system, and what Linux does |
//! | `mapping` | mappings, some of them at chosen addresses |
//! | `pagemap` | which pages are populated |
//! | `nodes` | NUMA nodes, and the calling thread's |
//! | `file`, `process`, `thread` | thin wrappers by noun; whether Neap may query the kernel |
//! | `cgroup` | files that one thread reads now and then: the control group's limits, pressure |
//! | `shared`, `areas` | memory that other processes read; tables and stacks of Neap's own |
//! | `fault` | the handler of SIGSEGV; the alternate stacks of threads |
//! | `loader` | `errno`, functions that not every process has, the tables of loaded objects |
//! | `write_guard` | guards by write protection, where the kernel has none by advice |
//! | `tagging` | memory tags, where the machine has them |
//! | `futex` | sleeping on a word, of this process or of several |
//! | `lock`, `fork` | locks without allocation; the gate by which a fork closes them |
//! | `lock_order` | the table of all locks; debug builds check it |
//! | `x86_64`, `aarch64` | what each machine needs in assembly |
//!
//! Every function here keeps the caller's `errno`.
//!
//! The kernel is called by the number of the call and by its own object (vDSO), never by a name of
//! the C library's: another library may define the name first, and allocate in its function.
//! `tests/structure` has the list of the names that remain.

/// Makes the system call of this name, with up to six words. Returns the kernel's answer, or the
/// negative number of an error. Leaves `errno` alone. Through the C library, a fork's child that
/// only ends would pay a page fault for each part of that library that it touches.
///
/// # Safety
/// - As the call of this name with these arguments; it makes neither a process nor a thread.
#[macro_export]
macro_rules! kernel {
    ($name:ident $(, $argument:expr)*) => {
        $crate::os::raw_syscall!($crate::os::Sysno::$name $(, $argument)*) as isize
    };
}

#[cfg(test)]
#[path = "../testing/access.rs"]
mod access;
pub mod areas;
pub mod cgroup;
#[cfg(test)]
#[path = "../testing/child.rs"]
pub mod child;
#[cfg(test)]
#[path = "../testing/fake_system.rs"]
pub mod fake;
#[cfg(not(loom))]
pub mod fault;
pub mod file;
pub mod fork;
pub mod futex;
#[cfg(all(test, loom))]
#[path = "../testing/gate_models.rs"]
mod gate_models;
pub mod linux;
pub mod loader;
pub mod lock;
#[cfg(loom)]
#[path = "../testing/loom_lock.rs"]
mod lock_loom;
pub mod lock_order;
mod mapping;
pub mod nodes;
pub mod pagemap;
pub mod process;
#[cfg(not(loom))]
pub mod shared;
pub mod tagging;
pub mod thread;
pub mod write_guard;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;

pub use arch::clear_streaming;
pub use linux::{Huge, Os, Purged};
pub use mapping::{Claim, ClaimError, OutOfMemory, RemapError};
pub use pagemap::{Answers, Backing, Populated, Unknown};
#[doc(hidden)]
pub use syscalls::{Sysno, raw_syscall};
pub use write_guard::GuardRefused;
