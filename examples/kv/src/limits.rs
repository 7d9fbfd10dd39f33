//! Provides the descriptors that the connections need.

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors besides the connections: standard streams, the listener, and epoll's.
const OTHERS: u64 = 36;

/// Raises the soft limit on open files to what `clients` connections need.
///
/// # Errors
/// If the hard limit is lower; the text says what to do.
pub fn allow(clients: u32) -> anyhow::Result<()> {
    let needed = u64::from(clients) + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(most) = maximum.filter(|&most| most < needed) {
        bail!(
            "--maxclients {clients} needs {needed} open files, but the hard limit is {most}. \
             Either start with --maxclients {}, or raise the limit before (as root: `ulimit -Hn {needed}`, \
             in a unit of systemd: LimitNOFILE={needed}).",
            most.saturating_sub(OTHERS).max(1)
        );
    }
    let wanted = Rlimit {
        current: Some(needed),
        maximum,
    };
    setrlimit(Resource::Nofile, wanted)
        .with_context(|| format!("cannot raise the limit on open files to {needed}"))
}
