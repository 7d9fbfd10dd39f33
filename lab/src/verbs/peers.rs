//! `neap-lab peers`: builds what can be built and lists what is available.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::engine::campaign::Progress;
use crate::engine::table::plain;
use crate::peers::{self, Peer, Places, Ready};

/// The arguments of `peers`.
#[derive(Args)]
pub struct Arguments {
    /// Only these peers
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    peers: Vec<String>,
    /// List what is available, build nothing
    #[arg(long)]
    list: bool,
    /// Neap's library
    #[arg(long, value_name = "PATH")]
    neap: Option<PathBuf>,
}

/// Builds and lists the peers.
///
/// # Errors
/// If a name is unknown or the folder for the builds cannot be made. An absent peer is no error: it
/// is listed with the reason.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let places = Places::new(arguments.neap.clone())?;
    let chosen = peers::select(&arguments.peers)?;
    let found = if arguments.list {
        chosen
            .iter()
            .map(|peer| (peer.name, peers::locate(peer, &places)))
            .collect()
    } else {
        fs::create_dir_all(&places.peers)?;
        obtain_all(&chosen, &places)
    };
    println!("{}", table(&found));
    Ok(ExitCode::SUCCESS)
}

fn obtain_all(
    chosen: &[&'static Peer],
    places: &Places,
) -> Vec<(&'static str, anyhow::Result<Ready>)> {
    let progress = Progress::new();
    progress.expect(chosen.len() as u64);
    let obtained = chosen.iter().map(|peer| {
        let ready = peers::obtain(peer, places, &|what| progress.phase(what));
        progress.step();
        (peer.name, ready)
    });
    obtained.collect()
}

/// The peers, each with its version and file or the reason of its absence.
fn table(found: &[(&'static str, anyhow::Result<Ready>)]) -> String {
    let mut table = plain(&["peer", "version", "library, or why absent"]);
    for (name, ready) in found {
        table.add_row(match ready {
            Ok(ready) => {
                [*name, &ready.version, &ready.library.to_string_lossy()].map(String::from)
            }
            Err(reason) => [name.to_string(), "absent".into(), format!("{reason:#}")],
        });
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_peer_is_shown_with_the_reason() {
        let text = table(&[("snmalloc", Err(anyhow::anyhow!("no compiler")))]);
        assert!(
            text.contains("snmalloc") && text.contains("no compiler"),
            "{text}"
        );
    }
}
