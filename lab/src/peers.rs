//! The allocators that are compared, as data: where each is found or what it is built from.

mod obtain;

use std::path::{Path, PathBuf};

pub use obtain::obtain;

/// An allocator.
pub struct Peer {
    /// Its name on the command line and in the records.
    pub name: &'static str,
    /// Where it comes from, the preferred first.
    pub sources: &'static [Source],
}

/// One way to have a peer's shared library.
pub enum Source {
    /// A file of the machine, with the Debian package that brings it.
    System {
        file: &'static str,
        package: &'static str,
    },
    /// The C library that every program has.
    CLibrary,
    /// A shared library inside a Python wheel.
    Wheel {
        package: &'static str,
        version: &'static str,
        member: &'static str,
    },
    /// C or C++ sources inside a crate of the registry.
    Crate { version: &'static str, build: Build },
    /// This project's own library.
    Neap,
}

/// How the sources inside a crate become a library that can be preloaded. The crate
/// `lab/peers/NAME` depends on it; cargo builds that first.
pub struct Build {
    /// The crate that carries the sources.
    pub package: &'static str,
    /// C and C++ flags for the crate's own build, beside those it sets itself.
    pub crate_flags: &'static str,
    /// How the crate's static library is linked in.
    pub archive: Archive,
    /// Sources compiled by us, relative to `root`: what the crate leaves out of its build.
    pub sources: &'static [&'static str],
    /// What the sources and the include folders are relative to.
    pub root: Root,
    /// Include folders, relative to `root`.
    pub includes: &'static [&'static str],
    /// Flags of the final compilation and link: those of the project's own build of its
    /// preload library.
    pub flags: &'static [&'static str],
    /// Further flags of a second build, for valgrind, where the first does not start under it.
    pub emulator_flags: &'static [&'static str],
}

/// How a static library is linked in.
pub enum Archive {
    /// Every object, so that its malloc is exported.
    Whole,
    /// The objects that our sources need.
    Needed,
    /// Not at all.
    None,
}

/// A folder of a built crate.
pub enum Root {
    /// The crate's sources.
    Package,
    /// The folder its build script wrote to.
    Out,
}

const PLAIN: Build = Build {
    package: "",
    crate_flags: "",
    archive: Archive::Whole,
    sources: &[],
    root: Root::Package,
    includes: &[],
    flags: &["-lpthread", "-ldl", "-lm"],
    emulator_flags: &[],
};

/// mimalloc compiles as one file; hidden visibility, as in its own build, lets calls inside it
/// be inlined.
const MIMALLOC: Build = Build {
    package: "libmimalloc-sys",
    crate_flags: "-fvisibility=hidden",
    ..PLAIN
};

/// All peers, in the order of the report.
pub const ALL: &[Peer] = &[
    Peer {
        name: "neap",
        sources: &[Source::Neap],
    },
    Peer {
        name: "glibc",
        sources: &[Source::CLibrary],
    },
    Peer {
        name: "mimalloc3",
        sources: &[
            Source::Wheel {
                package: "cmeel-mimalloc",
                version: "3.4.3",
                member: "cmeel.prefix/lib/libmimalloc.so.3",
            },
            Source::Crate {
                version: "3.3.2",
                build: MIMALLOC,
            },
        ],
    },
    Peer {
        name: "mimalloc2",
        sources: &[
            Source::Crate {
                version: "2.3.2",
                build: MIMALLOC,
            },
            Source::System {
                file: "libmimalloc.so.2.0",
                package: "libmimalloc2.0",
            },
        ],
    },
    Peer {
        name: "jemalloc",
        sources: &[
            Source::Crate {
                version: "5.3.1",
                build: Build {
                    package: "tikv-jemalloc-sys",
                    ..PLAIN
                },
            },
            Source::System {
                file: "libjemalloc.so.2",
                package: "libjemalloc2",
            },
        ],
    },
    Peer {
        name: "snmalloc",
        sources: &[Source::Crate {
            version: "0.7.6",
            build: Build {
                package: "snmalloc-sys",
                archive: Archive::None,
                sources: &[
                    "upstream/src/snmalloc/override/malloc.cc",
                    "upstream/src/snmalloc/override/new.cc",
                ],
                includes: &["upstream/src"],
                flags: &[
                    "-std=c++20",
                    "-mcx16",
                    "-fomit-frame-pointer",
                    "-ffunction-sections",
                    "-ftls-model=initial-exec",
                    "-fvisibility=hidden",
                    "-DSNMALLOC_EXPORT=__attribute__((visibility(\"default\")))",
                    "-DSNMALLOC_USE_WAIT_ON_ADDRESS=1",
                    "-DSNMALLOC_CHECK_LOADS=false",
                    "-DSNMALLOC_PAGEID=false",
                    "-DSNMALLOC_HAS_LINUX_FUTEX_H",
                    "-DSNMALLOC_HAS_LINUX_RANDOM_H",
                    "-DSNMALLOC_PLATFORM_HAS_GETENTROPY",
                    "-DMALLOC_USABLE_SIZE_QUALIFIER=",
                    "-static-libstdc++",
                    "-lpthread",
                    "-latomic",
                ],
                // Valgrind refuses the 256 GiB that its page map reserves. With its own switch
                // for emulators chunks are of 128 KiB instead of 16, and 32 GiB suffice; the
                // fast path is the same.
                emulator_flags: &["-DSNMALLOC_QEMU_WORKAROUND", "-DSNMALLOC_VA_BITS_64"],
                ..PLAIN
            },
        }],
    },
    Peer {
        name: "gperftools",
        sources: &[Source::System {
            file: "libtcmalloc_minimal.so.4",
            package: "libtcmalloc-minimal4",
        }],
    },
    Peer {
        name: "tcmalloc",
        sources: &[Source::Crate {
            version: "2026 (libtcmalloc-sys 0.1.14)",
            build: Build {
                package: "libtcmalloc-sys",
                archive: Archive::Needed,
                // The crate builds it without the C names.
                sources: &["patched_deps/c_src/tcmalloc/tcmalloc/tcmalloc.cc"],
                root: Root::Out,
                includes: &[
                    "patched_deps/c_src/tcmalloc",
                    "patched_deps/c_src/abseil-cpp",
                ],
                flags: &[
                    "-std=c++17",
                    "-w",
                    "-fno-omit-frame-pointer",
                    "-DTCMALLOC_INTERNAL_8K_PAGES",
                    "-lpthread",
                ],
                ..PLAIN
            },
        }],
    },
    Peer {
        name: "rpmalloc",
        sources: &[Source::Crate {
            version: "1.4 (rpmalloc-sys 0.2.3)",
            build: Build {
                package: "rpmalloc-sys",
                crate_flags: "-DENABLE_OVERRIDE=1",
                ..PLAIN
            },
        }],
    },
];

/// A peer whose library is there.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its name.
    pub name: &'static str,
    /// Its version, as far as it is known.
    pub version: String,
    /// The file to preload.
    pub library: PathBuf,
    /// The file to preload under valgrind; nearly always the same.
    pub counted: PathBuf,
}

impl Ready {
    fn new(name: &'static str, version: String, library: PathBuf) -> Ready {
        Ready {
            name,
            version,
            counted: library.clone(),
            library,
        }
    }
}

/// Where libraries are looked for.
pub struct Places {
    /// Where peers are built.
    pub peers: PathBuf,
    /// Neap's library, when the user names it.
    pub neap: Option<PathBuf>,
}

impl Places {
    /// The places around this executable, `<target>/<profile>/neap-lab`.
    ///
    /// # Errors
    /// When the executable's own path cannot be read, or `neap` is no file.
    pub fn new(neap: Option<PathBuf>) -> anyhow::Result<Places> {
        if let Some(path) = &neap {
            anyhow::ensure!(path.is_file(), "there is no library {path:?}");
        }
        let mut target = std::env::current_exe()?;
        target.pop();
        if target.ends_with("deps") {
            target.pop();
        }
        target.pop();
        Ok(Places {
            peers: target.join("peers"),
            neap,
        })
    }
}

/// The peer of that name.
pub fn find(name: &str) -> Option<&'static Peer> {
    ALL.iter().find(|p| p.name == name)
}

/// The peers named in `only`, or all when `only` is empty.
///
/// # Errors
/// When a name in `only` is no peer.
pub fn select(only: &[String]) -> anyhow::Result<Vec<&'static Peer>> {
    if only.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let known = || ALL.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
    let named = |name: &String| {
        find(name).ok_or_else(|| anyhow::anyhow!("no peer {name:?}; there are {}", known()))
    };
    only.iter().map(named).collect()
}

/// The first of the peer's sources whose library is there already.
///
/// # Errors
/// When none is: the reason, and what would bring it.
pub fn locate(peer: &'static Peer, places: &Places) -> anyhow::Result<Ready> {
    let mut reasons = Vec::new();
    for source in peer.sources {
        match locate_source(peer, source, places) {
            Ok(ready) => return Ok(ready),
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    anyhow::bail!("{}", reasons.join("; "))
}

fn locate_source(peer: &'static Peer, source: &Source, places: &Places) -> anyhow::Result<Ready> {
    let ready = |library, version| Ready::new(peer.name, version, library);
    match source {
        Source::Neap => {
            let library = locate_neap(places)?;
            let version = neap_version(&library)?;
            Ok(ready(library, version))
        }
        Source::CLibrary => Ok(ready(
            crate::identity::own_heap()?,
            crate::machine::glibc_version(),
        )),
        Source::System { file, package } => {
            let library = system_library(file)
                .ok_or_else(|| anyhow::anyhow!("no {file} here (Debian: {package})"))?;
            Ok(ready(library, package_version(package)))
        }
        Source::Wheel { version, .. } | Source::Crate { version, .. } => {
            let library = built_library(peer, version, places);
            anyhow::ensure!(
                library.is_file(),
                "{version} is not built (neap-lab peers builds it)"
            );
            let counted = counted_library(peer, version, places);
            let ready = ready(library, version.to_string());
            Ok(if counted.is_file() {
                Ready { counted, ..ready }
            } else {
                ready
            })
        }
    }
}

/// Where the second build of a source stands, if it has one.
fn counted_library(peer: &Peer, version: &str, places: &Places) -> PathBuf {
    built_library(peer, version, places).with_extension("counted.so")
}

/// Where the library of a built source stands; the version is part of the name.
fn built_library(peer: &Peer, version: &str, places: &Places) -> PathBuf {
    let plain: String = version.chars().filter(|c| !"()".contains(*c)).collect();
    let file = format!("lib{}-{}.so", peer.name, plain.replace(' ', "-"));
    places.peers.join(file)
}

/// The sources' revision does not prove what the library was built from: its bytes tell it apart.
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
        return Ok(path.canonicalize()?);
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
    let found = found.ok_or_else(|| {
        anyhow::anyhow!("no libneap.so in target/dist or beside this program (--neap names one)")
    })?;
    Ok(found.canonicalize()?)
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
    let query = std::process::Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", package])
        .output();
    match query {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        _ => "of this machine".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_unknown_peer_is_refused() {
        assert!(select(&["dlmalloc".into()]).is_err());
        assert_eq!(select(&[]).unwrap().len(), ALL.len());
    }
}
