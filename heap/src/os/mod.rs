//! The only layer that speaks to the kernel.
//!
//! | file | contents |
//! |---|---|
//! | `system` | the trait [`Os`]: what the page heap needs of an operating system |
//! | `linux`, `mapping` | the real one; anonymous mappings, and the calls about them |
//! | `claim` | mappings at chosen addresses |
//! | `pagemap`, `pagemap_file` | which pages are populated; the file that says so |
//! | `file`, `process`, `thread` | thin wrappers by noun |
//! | `inquiry`, `cgroup` | files that one thread reads now and then; the control group's limits |
//! | `shared` | memory that other processes read |
//! | `fault` | the handler of SIGSEGV; what it interrupted; the stack that it runs on |
//! | `signal_frame` | where the handler of the program that follows runs |
//! | `errno`, `abort` | preserves the caller's `errno`; ends the process |
//! | `loader`, `elf` | functions that not every process has; the tables of loaded objects |
//! | `sandbox` | whether Neap may query the kernel |
//! | `write_guard` | guards by write protection, where the kernel has none by advice |
//! | `tagging`, `untagged` | memory tags, where the machine has them |
//! | `machine`, `futex` | sleeping on a word, of this process or of several |
//! | `gate`, `lock`, `fork` | locks without allocation, and how a fork closes them |
//! | `lock_order` | the table of all locks; debug builds check it |
//! | `late`, `own_stack` | tables mapped at first use; work on a stack of its own |
//! | `x86_64`, `aarch64`, `portable` | what each machine needs in assembly |
//!
//! Every function here keeps the caller's `errno`.
//!
//! The kernel is called by the number of the call and by its own object (vDSO), never by a name of
//! the C library's: another library may define the name first, and allocate in its function.
//! `tests/structure` has the list of the names that remain.

pub mod abort;
#[cfg(test)]
#[path = "../testing/access.rs"]
mod access;
pub mod cgroup;
#[cfg(test)]
#[path = "../testing/child.rs"]
pub mod child;
mod claim;
pub mod elf;
pub mod errno;
#[cfg(test)]
#[path = "../testing/fake_system.rs"]
pub mod fake;
#[cfg(not(loom))]
pub mod fault;
pub mod file;
pub mod fork;
pub mod futex;
mod gate;
#[cfg(all(test, loom))]
#[path = "../testing/gate_models.rs"]
mod gate_models;
pub mod inquiry;
pub mod late;
pub mod linux;
pub mod loader;
pub mod lock;
#[cfg(loom)]
#[path = "../testing/loom_lock.rs"]
mod lock_loom;
pub mod lock_order;
mod machine;
mod mapping;
pub mod operators;
pub mod own_stack;
mod pagemap;
pub mod pagemap_file;
pub mod process;
pub mod sandbox;
#[cfg(not(loom))]
pub mod shared;
#[cfg(not(loom))]
mod signal_frame;
mod system;
#[cfg(target_arch = "aarch64")]
pub mod tagging;
#[cfg(not(target_arch = "aarch64"))]
#[path = "untagged.rs"]
pub mod tagging;
pub mod thread;
pub mod write_guard;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "portable.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;

pub use arch::{call, call_long, clear_streaming};
pub use system::{
    Answers, Backing, Claim, ClaimError, GuardRefused, Huge, Os, OutOfMemory, Populated, Purged,
    RemapError, Unknown,
};
