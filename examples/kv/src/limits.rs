//! Provides the descriptors that the connections need.

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors besides the connections: standard streams, listeners, and those that threads poll
/// with.
const OTHERS: u64 = 32;

/// Raises the soft limit on open files to what `clients` connections and `threads` threads need.
///
/// # Errors
/// If the hard limit is lower; the text says what to do.
pub fn allow(clients: u32, threads: u16) -> anyhow::Result<()> {
    let others = OTHERS + 4 * u64::from(threads);
    let needed = u64::from(clients) + others;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(most) = maximum.filter(|&most| most < needed) {
        bail!(
            "--maxclients {clients} needs {needed} open files, but the hard limit is {most}. \
             Either start with --maxclients {}, or raise the limit before (as root: `ulimit -Hn {needed}`, \
             in a unit of systemd: LimitNOFILE={needed}).",
            most.saturating_sub(others).max(1)
        );
    }
    let wanted = Rlimit {
        current: Some(needed),
        maximum,
    };
    setrlimit(Resource::Nofile, wanted)
        .with_context(|| format!("cannot raise the limit on open files to {needed}"))
}
