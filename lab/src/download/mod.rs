//! The published download: requests over pyOpenSSL, which allocates a zero-filled buffer of the
//! chunk's size for every TLS read, under each allocator, in interleaved rounds. The Python
//! programs are in `lab/download/`; the head of `client.py` says what it restores from 2016, and
//! how.
//!
//! | file | contents |
//! |---|---|
//! | `environment` | the Python packages, the certificate, and the HTTPS server |
//! | `cell` | one download in a client process of its own |
//! | `views` | the tables and the picture |

mod cell;
mod environment;
mod views;

use std::time::Duration;

use crate::engine::campaign::Campaign;
use crate::engine::experiment::{Ended, Experiment, PLAIN, available_peers};
use crate::engine::settings::{JSON, NEAP, PEERS, RECORDS, ROUNDS, SEED, Setting, Settings};
use crate::peers;
use crate::peers::locate::Places;
use cell::{Buffers, Chunk, MIB, Terms};
use environment::{Environment, Server};

/// The published download.
pub const EXPERIMENT: Experiment = Experiment {
    name: "download",
    about: "Measure an HTTPS download with buffers of the chunk's size, as PyOpenSSL made them in \
        2016",
    settings: &[
        NEAP,
        PEERS,
        Setting::numbers("chunks", "MIB", (1, 2_000))
            .default("1,10,100,1000")
            .about("The chunk sizes in MiB"),
        Setting::number("mib", "MIB", (1, 4_096))
            .default("64")
            .about("The size of a download in MiB"),
        Setting::number("downloads", "NUMBER", (1, 100))
            .default("1")
            .about("Consecutive downloads in one client; after the first, its memory is warm"),
        Setting::number("limit", "SECONDS", (1, 120))
            .default("10")
            .about("Stop a client after this many seconds, and judge what it received"),
        ROUNDS.default("3"),
        Setting::switch(
            "control",
            "Also measure buffers that are not zeroed, as pyOpenSSL makes them today: shows what a \
             large chunk costs apart from zeroing",
        ),
        JSON,
        RECORDS,
        Setting::switch("quiet", "Show no progress"),
        SEED,
        Setting::switch(
            "prepare",
            "Only set up the Python packages (with --offline: only check for them)",
        ),
        Setting::switch(
            "offline",
            "Set up nothing; without the Python packages, exit with 3",
        ),
        Setting::path("env", "FOLDER")
            .about("Folder of the Python packages (default: target/cases/download)"),
    ],
    run: carry_out,
    tables: |record, _| views::tables(record),
    picture: |record, _| Some(views::picture(record)),
    ..PLAIN
};

/// The exit code if there is no environment and none may be made.
const NO_ENVIRONMENT: u8 = 3;

/// Sets up what is missing, then runs every client. A failed client is a result.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let places = Places::new(settings.path("neap"))?;
    peers::select(&settings.names("peers"))?;
    let environment = Environment::new(settings.path("env"), &places)?;
    let folder = environment.folder().display();
    if !environment.is_ready() && settings.is_on("offline") {
        eprintln!(
            "neap-lab: no Python packages in {folder} (neap-lab download --prepare sets them up)"
        );
        return Ok(Ended::Early(NO_ENVIRONMENT));
    }
    environment.set_up()?;
    let versions = environment.versions()?;
    if settings.is_on("prepare") {
        println!("{folder}: {versions}");
        return Ok(Ended::Early(0));
    }
    let terms = Terms {
        body: settings.number("mib") * MIB,
        downloads: settings.number("downloads") as u32,
        limit: Duration::from_secs(settings.number("limit")),
    };
    let (rounds, mut peers) = (settings.rounds(1), available_peers(settings)?);
    let (downloads, limit) = (terms.downloads, terms.limit.as_secs());
    let options = [
        ("rounds", rounds.to_string()),
        ("seed", settings.number("seed").to_string()),
        (
            "download",
            format!("{downloads} times {} MiB", terms.body / MIB),
        ),
        ("limit", format!("{limit} s")),
        ("packages", versions),
    ];
    campaign.head(&options, &peers);
    let mut server = Server::start(&environment, terms.body / MIB)?;
    peers.retain(|peer| {
        let takes = cell::ensure_preload_takes(&environment, peer);
        takes
            .map_err(|error| campaign.fail(format!("{}: {error:#}", peer.name)))
            .is_ok()
    });
    let buffers: &[Buffers] = if settings.is_on("control") {
        &[Buffers::Zeroed, Buffers::Unzeroed]
    } else {
        &[Buffers::Zeroed]
    };
    let chunk = |mb| buffers.iter().map(move |&buffers| Chunk { mb, buffers });
    let chunks: Vec<Chunk> = settings
        .numbers("chunks")
        .into_iter()
        .flat_map(chunk)
        .collect();
    campaign.rounds(rounds, (&chunks, &peers), |&chunk, peer| {
        let sample = cell::once(&environment, &mut server, &terms, (chunk, peer))?;
        Ok(sample.figures())
    });
    Ok(Ended::Measured)
}
