//! The sampling heap profiler: which calls allocated the memory that is live now.
//!
//! ```
//! use neap::profile;
//!
//! profile::start(512 << 10)?; // one sample every 512 KiB on average
//! assert_eq!(profile::rate(), Some(512 << 10));
//! // … `neap profile PID` shows the call tree, in another terminal …
//! profile::stop();
//! # Ok::<(), profile::ProfileError>(())
//! ```
//!
//! The samples are in memory that other processes of the same user can read. `neap profile PID`
//! shows them, even after [`stop`].
//!
//! [`pprof`] gives the profile to the program itself. A server hands it out at Go's path,
//! `/debug/pprof/heap`. With axum:
//!
//! ```ignore
//! let heap = || async { neap::profile::pprof().map_err(|error| error.to_string()) };
//! let router = router.route("/debug/pprof/heap", get(heap));
//! ```
//!
//! Then `go tool pprof http://SERVER/debug/pprof/heap` shows it. `examples/axum` in Neap's sources
//! is a whole program.

mod pprof;

use alloc::vec::Vec;
use neap_heap::cache::heap::HEAP;
use neap_heap::init;
use neap_instruments::profile;
use neap_shared::status_page::Refusal;

/// Why the profiler did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// The rate is below 4 KiB or above 1 GiB.
    Rate,
    /// The kernel or a limit refused memory for the samples.
    Memory,
    /// The process has forbidden itself the system calls that a stack walk needs.
    Sandbox,
    /// The profiler was never on, or this process, a child of `fork`, has no samples of its own.
    Off,
}

impl core::fmt::Display for ProfileError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Self::Rate => "the rate of the profiler is 4 KiB to 1 GiB",
            Self::Memory => "no memory for the profiler's samples",
            Self::Sandbox => "a sandbox forbids the profiler's system calls",
            Self::Off => "the profiler was never on, or has no samples of this child process",
        })
    }
}

impl core::error::Error for ProfileError {}

/// Starts the profiler, or changes its rate: on average one sample every `mean_bytes` allocated
/// bytes. Blocks that are already live are not sampled.
///
/// # Errors
/// - [`ProfileError::Rate`]: `mean_bytes` is not between 4 KiB and 1 GiB.
/// - [`ProfileError::Memory`]: refused by the kernel or a limit.
/// - [`ProfileError::Sandbox`]: the process has forbidden itself system calls.
pub fn start(mean_bytes: u64) -> Result<(), ProfileError> {
    init::initialize();
    // The heap's value for off.
    if mean_bytes == 0 {
        return Err(ProfileError::Rate);
    }
    match profile::set_rate(mean_bytes) {
        Refusal::Rate => Err(ProfileError::Rate),
        Refusal::Memory => Err(ProfileError::Memory),
        Refusal::Sandbox => Err(ProfileError::Sandbox),
        Refusal::None => Ok(()),
    }
}

/// Stops the profiler. Blocks that were sampled keep their samples until they are freed.
pub fn stop() {
    init::initialize();
    profile::set_rate(0);
}

/// The mean number of bytes between two samples; `None` while the profiler is off.
pub fn rate() -> Option<u64> {
    init::initialize();
    Some(HEAP.sampling()).filter(|&rate| rate != 0)
}

/// The profile as a pprof file (`profile.proto`, not compressed): of each place that allocated,
/// objects and bytes since the profiler began (`alloc_objects`, `alloc_space`), those live now
/// (`inuse_objects`, `inuse_space`), and the bytes that size classes add to the live ones
/// (`waste_space`). The figures are estimates from samples.
///
/// The file names no functions. It has addresses, and the path of each program and library that
/// they are in. `go tool pprof` looks the names up in these files, so it needs them at these paths,
/// or in a directory in `PPROF_BINARY_PATH`. `neap profile --format pprof` writes the names into
/// its file.
///
/// The call allocates, and it takes a lock for each place. It copies the file from memory that
/// other processes of the same user may write, so it trusts no number there.
///
/// ```
/// use neap::profile;
///
/// assert_eq!(profile::pprof(), Err(profile::ProfileError::Off));
/// profile::start(512 << 10)?;
/// let file = std::env::temp_dir().join(format!("heap-{}.pb", std::process::id()));
/// std::fs::write(&file, profile::pprof()?)?;
/// # std::fs::remove_file(file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// - [`ProfileError::Off`]: the profiler was never on, or this process, a child of `fork`, has no
///   samples of its own, because it got no memory for them.
#[unsafe(link_section = "neap_text")]
pub fn pprof() -> Result<Vec<u8>, ProfileError> {
    init::initialize();
    pprof::file().ok_or(ProfileError::Off)
}
