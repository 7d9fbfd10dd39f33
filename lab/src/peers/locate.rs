//! Finds the peers' libraries: on the machine, among the builds, beside this program.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::nameable::nameable;
use super::{Peer, Source};
use crate::command::{finished, of_words};

/// A peer whose library was found.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its name.
    pub name: &'static str,
    /// Its version, if known.
    pub version: String,
    /// The file to preload.
    pub library: PathBuf,
    /// The file to preload under valgrind; usually the same.
    pub counted: PathBuf,
    /// Variables of the timed processes, in addition to the preload.
    pub settings: Vec<(&'static str, String)>,
}

impl Ready {
    /// The same library with one more variable.
    pub fn with_setting(&self, name: &'static str, value: String) -> Ready {
        let mut ready = self.clone();
        ready.settings.push((name, value));
        ready
    }
}

/// Where libraries are searched.
pub struct Places {
    /// Where peers are built.
    pub peers: PathBuf,
    /// Neap's library, if the user names it.
    pub neap: Option<PathBuf>,
}

impl Places {
    /// The places around this executable, `<target>/<profile>/neap-lab`.
    ///
    /// # Errors
    /// If the executable's own path cannot be read, or `neap` is no file.
    pub fn new(neap: Option<PathBuf>) -> anyhow::Result<Places> {
        if let Some(path) = &neap {
            anyhow::ensure!(path.is_file(), "there is no library {path:?}");
        }
        let peers = own_folder()?.with_file_name("peers");
        Ok(Places { peers, neap })
    }
}

/// The folder of the built programs.
///
/// # Errors
/// If this executable's own path cannot be read.
pub fn own_folder() -> io::Result<PathBuf> {
    let mut folder = std::env::current_exe()?;
    // A test's executable is in a folder below.
    while folder.pop() && folder.ends_with("deps") {}
    Ok(folder)
}

/// Neap's own library.
///
/// # Errors
/// If it does not exist.
pub fn neap(places: &Places) -> anyhow::Result<Ready> {
    locate_name("neap", places)
}

/// The library of the peer with that name.
///
/// # Errors
/// If there is no such peer, or its library does not exist.
pub fn locate_name(name: &str, places: &Places) -> anyhow::Result<Ready> {
    let peer = super::find(name).with_context(|| format!("no peer {name:?}"))?;
    locate(peer, places)
}

/// The first of the peer's sources whose library exists.
///
/// # Errors
/// If there is none; the error gives the reason and a remedy.
pub fn locate(peer: &'static Peer, places: &Places) -> anyhow::Result<Ready> {
    let mut reasons = Vec::new();
    for source in &peer.sources {
        match locate_source(peer, source, places) {
            Ok(ready) => return Ok(ready),
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    anyhow::bail!("{}", reasons.join("; "))
}

/// The library of one source, if it exists.
///
/// # Errors
/// If it does not.
pub fn locate_source(
    peer: &'static Peer,
    source: &'static Source,
    places: &Places,
) -> anyhow::Result<Ready> {
    let ready = |library: PathBuf, version| Ready {
        name: &peer.name,
        version,
        counted: library.clone(),
        library,
        settings: Vec::new(),
    };
    match source {
        Source::Neap { settings } => {
            let library = locate_neap(places)?;
            let version = neap_version(&library)?;
            let with = |ready: Ready, (name, value): (&'static String, &String)| {
                ready.with_setting(name, value.clone())
            };
            Ok(settings.iter().fold(ready(library, version), with))
        }
        Source::CLibrary => Ok(ready(
            crate::work::identity::own_heap()?,
            crate::machine::glibc_version(),
        )),
        Source::System { file, package } => {
            let library = system_library(file);
            let library = library.with_context(|| format!("no {file} here (Debian: {package})"))?;
            Ok(ready(library, package_version(package)))
        }
        Source::Wheel { version, .. } | Source::Crate { version, .. } => {
            let library = built_library(peer, version, places);
            anyhow::ensure!(
                library.is_file(),
                "{version} is not built (neap-lab peers builds it)"
            );
            let counted = counted_library(peer, version, places);
            let ready = ready(nameable(library)?, version.to_string());
            Ok(if counted.is_file() {
                let counted = nameable(counted)?;
                Ready { counted, ..ready }
            } else {
                ready
            })
        }
    }
}

/// The path of a source's second build, if it has one.
pub fn counted_library(peer: &Peer, version: &str, places: &Places) -> PathBuf {
    built_library(peer, version, places).with_extension("counted.so")
}

/// The path of a built source's library; the version is part of the name.
pub fn built_library(peer: &Peer, version: &str, places: &Places) -> PathBuf {
    let plain: String = version.chars().filter(|c| !"()".contains(*c)).collect();
    let file = format!("lib{}-{}.so", peer.name, plain.replace(' ', "-"));
    places.peers.join(file)
}

/// The revision of the sources does not prove what the library was built from, so a hash of its
/// bytes identifies it.
fn neap_version(library: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(library)?;
    let fnv1a = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let revision = crate::machine::revision();
    Ok(format!(
        "sources {revision}, library of {} bytes, fnv1a {fnv1a:016x}",
        bytes.len()
    ))
}

fn locate_neap(places: &Places) -> anyhow::Result<PathBuf> {
    if let Some(path) = &places.neap {
        return Ok(nameable(path.canonicalize()?)?);
    }
    let here = std::env::current_exe()?;
    let here = here.parent().unwrap_or(Path::new("."));
    let candidates = [
        here.join("../dist/libneap.so"),
        here.join("libneap.so"),
        here.join("libneap_c.so"),
        here.join("deps/libneap_c.so"),
    ];
    let found = candidates.iter().find(|path| path.is_file());
    let found =
        found.context("no libneap.so in target/dist or beside this program (--neap names one)")?;
    Ok(nameable(found.canonicalize()?)?)
}

fn system_library(file: &str) -> Option<PathBuf> {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    [
        "/usr/local/lib",
        &format!("/usr/lib/{multiarch}"),
        "/usr/lib64",
        "/usr/lib",
    ]
    .iter()
    .map(|folder| Path::new(folder).join(file))
    .find(|path| path.is_file())
}

fn package_version(package: &str) -> String {
    let mut query = of_words("dpkg-query -W -f ${Version}");
    let told = finished(query.arg(package));
    told.unwrap_or_else(|_| "of this machine".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::find;

    #[test]
    fn glibc_is_always_there_and_an_unbuilt_peer_says_why_not() {
        let mut places = Places::new(None).unwrap();
        assert!(locate(find("glibc").unwrap(), &places).is_ok());
        places.peers = "/nowhere".into();
        let reason = locate(find("snmalloc").unwrap(), &places)
            .unwrap_err()
            .to_string();
        assert!(reason.contains("neap-lab peers"), "{reason}");
    }

    #[test]
    fn a_wrong_path_to_neap_is_refused() {
        assert!(Places::new(Some("/nowhere/libneap.so".into())).is_err());
    }

    #[test]
    fn neaps_version_tells_the_librarys_bytes() {
        let file = std::env::temp_dir().join(format!("neap-lab-version-{}", std::process::id()));
        std::fs::write(&file, "a").unwrap();
        let version = neap_version(&file).unwrap();
        assert!(
            version.ends_with("library of 1 bytes, fnv1a af63dc4c8601ec8c"),
            "{version}"
        );
        std::fs::remove_file(file).unwrap();
    }
}
