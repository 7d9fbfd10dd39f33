//! `neap-lab peers`: builds what can be built and lists what is available.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::peers::{self, Peer, Places, Ready};
use crate::report;

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
    println!("{}", report::peers(&found));
    Ok(ExitCode::SUCCESS)
}

fn obtain_all(
    chosen: &[&'static Peer],
    places: &Places,
) -> Vec<(&'static str, anyhow::Result<Ready>)> {
    let style = ProgressStyle::with_template("{spinner} [{pos}/{len}] {msg} ({elapsed})");
    let bar = ProgressBar::new(chosen.len() as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    let obtained = chosen.iter().map(|peer| {
        let say = |what: &str| report::progress(&bar, what);
        let ready = peers::obtain(peer, places, &say);
        bar.inc(1);
        (peer.name, ready)
    });
    let obtained = obtained.collect();
    bar.finish_and_clear();
    obtained
}
