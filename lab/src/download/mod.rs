//! The published download: requests over pyOpenSSL, which allocates a zero-filled buffer of the
//! chunk's size for every TLS read, under each allocator, in interleaved rounds. The Python
//! programs are in `lab/download/`; the head of `client.py` says what it restores from 2016, and
//! how. `server.py` runs one client, and checks what it received. `views` has the tables and the
//! picture.

mod views;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::cases::case::{Case, Home};
use crate::cases::install;
use crate::command::{self, finished};
use crate::engine::campaign::{Campaign, Named};
use crate::engine::experiment::{Ended, Experiment, PLAIN, available_peers};
use crate::engine::record::{Figure, Unit};
use crate::engine::settings::{self, Settings};
use crate::names::named;
use crate::peers::locate::{Places, Ready};
use crate::work::identity;
use crate::{peers, run};

/// The published download.
pub const EXPERIMENT: Experiment = Experiment {
    name: "download",
    about: "Measure an HTTPS download with buffers of the chunk's size, as PyOpenSSL made them in \
        2016",
    settings: || {
        vec![
            settings::neap(),
            settings::peers(),
            settings::numbers("chunks", "MIB", (1, 2_000))
                .default_value("1,10,100,1000")
                .help("The chunk sizes in MiB"),
            settings::number("mib", "MIB", (1, 4_096))
                .default_value("64")
                .help("The size of a download in MiB"),
            settings::number("downloads", "NUMBER", (1, 100))
                .default_value("1")
                .help("Consecutive downloads in one client; after the first, its memory is warm"),
            settings::number("limit", "SECONDS", (1, 120))
                .default_value("10")
                .help("Stop a client after this many seconds, and judge what it received"),
            settings::rounds().default_value("3"),
            settings::switch(
                "control",
                "Also measure buffers that are not zeroed, as pyOpenSSL makes them today: shows what a \
             large chunk costs apart from zeroing",
            ),
            settings::json(),
            settings::records(),
            settings::switch("quiet", "Show no progress"),
            settings::seed(),
            settings::switch(
                "prepare",
                "Only set up the Python packages (with --offline: only check for them)",
            ),
            settings::switch(
                "offline",
                "Set up nothing; without the Python packages, exit with 3",
            ),
            settings::path("env", "FOLDER")
                .help("Folder of the Python packages (default: target/cases/download)"),
        ]
    },
    run: carry_out,
    tables: |record, _| views::tables(record),
    picture: |record, _| Some(views::picture(record)),
    ..PLAIN
};

/// The exit code if there is no environment and none may be made.
const NO_ENVIRONMENT: u8 = 3;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/download");

const NO_PACKAGES: &str = "cannot set up the Python packages. This is needed once, and needs CPython \
                           3.11 or newer with its venv module (Debian: apt-get install \
                           python3-venv) and the package index: try again where there is network \
                           (neap-lab download --prepare), or name a folder with the wheels \
                           (PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER)";

/// Sets up what is missing, then runs every client. A failed client is a result.
fn carry_out(settings: &Settings, campaign: &mut Campaign) -> anyhow::Result<Ended> {
    let places = Places::new(settings.path("neap"))?;
    peers::select(&settings.names("peers"))?;
    let case = Case::read(Path::new(FOLDER))?;
    let mut home = Home::of(&case, &places)?;
    if let Some(folder) = settings.path("env") {
        // The client and the server open files in it.
        home.env = std::path::absolute(folder)?;
    }
    let folder = home.env.display();
    if install::missing(&case, &home).is_some() && settings.is_on("offline") {
        eprintln!(
            "neap-lab: no Python packages in {folder} (neap-lab download --prepare sets them up)"
        );
        return Ok(Ended::Early(NO_ENVIRONMENT));
    }
    // Announced even without progress: something is downloaded and written.
    install::install(&case, &home, &|what| eprintln!("{what}")).context(NO_PACKAGES)?;
    let versions = finished(program(&home, "versions.py"));
    let versions = versions.with_context(|| format!("remove {folder}: its packages fail"))?;
    let versions = versions.trim();
    if settings.is_on("prepare") {
        println!("{folder}: {versions}");
        return Ok(Ended::Early(0));
    }
    let rounds = settings.rounds(1);
    let options = [
        ("rounds", rounds.to_string()),
        ("seed", settings.number("seed").to_string()),
        (
            "download",
            format!(
                "{} times {} MiB",
                settings.number("downloads"),
                settings.number("mib")
            ),
        ),
        ("limit", format!("{} s", settings.number("limit"))),
        ("packages", versions.to_string()),
    ];
    let mut peers = available_peers(settings)?;
    campaign.head(&options, &peers);
    peers.retain(|peer| {
        let mut python = Command::new(python(&home));
        let takes = identity::ensure_bound(python.args(["-I", "-c", ""]), &peer.library);
        takes
            .map_err(|error| campaign.fail(format!("{}: {error:#}", peer.name)))
            .is_ok()
    });
    let chunks = chunks(settings);
    campaign.rounds(rounds, (&chunks, &peers), |&chunk, peer| {
        once(&home, settings, (chunk, peer))
    });
    Ok(Ended::Measured)
}

/// The interpreter that finds the packages.
fn python(home: &Home) -> PathBuf {
    home.env.join("bin/python3")
}

/// A Python program of the experiment, without the user's own settings for Python.
fn program(home: &Home, file: &str) -> Command {
    let mut command = Command::new(python(home));
    command.arg("-I").arg(Path::new(FOLDER).join(file));
    command
}

/// The unit of sizes and rates: the report of 2016 requested `100 * 2 ** 20`. Records call it MB.
const MIB: u64 = 1 << 20;

named! {
    /// How pyOpenSSL makes its receive buffers.
    pub enum Buffers {
        /// Zero-filled, as in 2016: the experiment.
        Zeroed = "zeroed",
        /// Not zeroed, as pyOpenSSL does today: the control, which shows the rest of a download's
        /// cost.
        Unzeroed = "unzeroed",
    }
}

/// A client's chunk size and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The chunk in MiB.
    pub mb: u64,
    /// The receive buffers.
    pub buffers: Buffers,
}

impl Chunk {
    /// The chunk of that name.
    pub fn find(case: &str) -> Option<Chunk> {
        let (mb, buffers) = case.split_once(" MB ")?;
        let (mb, buffers) = (mb.parse().ok()?, Buffers::find(buffers)?);
        Some(Chunk { mb, buffers })
    }
}

impl Named for Chunk {
    fn name(&self) -> String {
        format!("{} MB {}", self.mb, self.buffers.name())
    }
}

fn chunks(settings: &Settings) -> Vec<Chunk> {
    let count = if settings.is_on("control") { 2 } else { 1 };
    let of_size = |mb| Buffers::ALL.map(|buffers| Chunk { mb, buffers });
    let sizes = settings.numbers("chunks").into_iter();
    sizes
        .flat_map(|mb| of_size(mb).into_iter().take(count))
        .collect()
}

/// The name of the rate in MiB per second, 0 if nothing arrived.
pub const RATE: &str = "MB a second";
/// The name of the time from the response heads to the last bytes.
pub const TIME: &str = "time";
/// The name of what ended a client, and its value for one that ran out of time.
pub const END: &str = "end";
pub const TIME_UP: &str = "time";

/// Runs one client.
///
/// # Errors
/// If the client fails, hangs, used another malloc or buffers of another size, or received other
/// bytes than the server sent.
fn once(
    home: &Home,
    settings: &Settings,
    (chunk, peer): (Chunk, &Ready),
) -> anyhow::Result<Vec<Figure>> {
    let mut server = program(home, "server.py");
    server.args(["key.pem", "certificate.pem"].map(|file| home.env.join(file)));
    server
        .arg(settings.number("mib").to_string())
        .arg(&peer.library);
    server.arg(Path::new(FOLDER).join("client.py"));
    let (limit, downloads) = (settings.number("limit"), settings.number("downloads"));
    server.args([chunk.mb * MIB, limit, downloads].map(|number| number.to_string()));
    server.arg(chunk.buffers.name()).env_remove("LD_PRELOAD");
    let report = command::output(&mut server)?;
    run::ensure_heap(&report, &peer.library)?;
    figures(&report)
}

fn figures(report: &str) -> anyhow::Result<Vec<Figure>> {
    let number = |key| anyhow::Ok(run::needed(report, key)?.parse::<f64>()?);
    let (received, seconds) = (number("received")?, number("seconds")?);
    anyhow::ensure!(seconds > 0.0, "the download took {seconds} s");
    Ok(vec![
        Figure::number(RATE, received / MIB as f64 / seconds),
        Figure::bytes("received", received),
        Figure::new(TIME, Unit::Seconds, seconds),
        Figure::text(END, run::needed(report, "end")?),
        Figure::new("reads", Unit::Count, number("reads")?),
        Figure::new("peak RSS", Unit::Kib, number("peak_rss_kib")?),
        Figure::new("minor faults", Unit::Count, number("minor_faults")?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_pinned() {
        let case = Case::read(Path::new(FOLDER)).unwrap();
        let is_pinned = |package: &String| {
            let version = package.split_once("==");
            version.is_some_and(|(_, version)| !version.is_empty())
        };
        assert!(case.install.pip.len() > 3 && case.install.pip.iter().all(is_pinned));
    }

    #[test]
    fn a_report_is_read_and_its_rate_is_in_mb_a_second() {
        let report = "seconds=0.5\nend=body\nreads=260\nlargest_buffer=1048576\n\
                      peak_rss_kib=4096\nminor_faults=9\nreceived=4194304\n";
        let told = figures(report).unwrap();
        assert_eq!(told[0], Figure::number(RATE, 8.0));
        assert_eq!(told[3], Figure::text(END, "body"));
        assert_eq!(told[4], Figure::count("reads", 260));
        for (good, bad) in [("seconds=0.5", "seconds=0"), ("reads=", "read=")] {
            assert!(figures(&report.replace(good, bad)).is_err(), "{bad}");
        }
    }
}
