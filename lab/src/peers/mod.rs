//! The allocators to compare, as data: where each is found, or what it is built from.
//!
//! | file | contents |
//! |---|---|
//! | `locate` | their libraries on this machine |
//! | `nameable` | copies of those whose path the loader would split |
//! | `obtain` | builds those that are not installed |

pub mod locate;
mod nameable;
pub mod obtain;

use crate::names::choose;

/// An allocator.
pub struct Peer {
    /// Its name on the command line and in the records.
    pub name: &'static str,
    /// Its sources, in order of preference.
    pub sources: &'static [Source],
}

/// A source of a peer's shared library.
pub enum Source {
    /// A file of the machine, with the Debian package that contains it.
    System {
        file: &'static str,
        package: &'static str,
    },
    /// The C library of every program.
    CLibrary,
    /// A shared library inside a Python wheel.
    Wheel {
        package: &'static str,
        version: &'static str,
        member: &'static str,
    },
    /// C or C++ sources inside a crate of the registry.
    Crate { version: &'static str, build: Build },
    /// This project's own library, with variables.
    Neap {
        settings: &'static [(&'static str, &'static str)],
    },
}

/// How the sources inside a crate become a preloadable library. The crate `lab/peers/NAME` depends
/// on that crate; cargo builds it first.
pub struct Build {
    /// The crate that contains the sources.
    pub package: &'static str,
    /// C and C++ flags for the crate's own build, in addition to its own.
    pub crate_flags: &'static str,
    /// How the crate's static library is linked in.
    pub archive: Archive,
    /// Sources that the lab compiles, relative to `root`: those that the crate's build leaves out.
    pub sources: &'static [&'static str],
    /// The base of the relative paths.
    pub root: Root,
    /// Include directories, relative to `root`.
    pub includes: &'static [&'static str],
    /// Flags of the final compilation and link: those that the project uses for its own preload
    /// library.
    pub flags: &'static [&'static str],
    /// Additional flags of a second build for valgrind, if the first does not start under it.
    pub emulator_flags: &'static [&'static str],
}

/// How a static library is linked in.
pub enum Archive {
    /// Every object, so that its malloc is exported.
    Whole,
    /// The objects that the lab's sources need.
    Needed,
    /// Not at all.
    None,
}

/// A directory of a built crate.
pub enum Root {
    /// The crate's sources.
    Package,
    /// The output directory of its build script.
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

/// mimalloc compiles as one file. Hidden visibility, as in its own build, lets the compiler inline
/// internal calls.
const MIMALLOC: Build = Build {
    package: "libmimalloc-sys",
    crate_flags: "-fvisibility=hidden",
    ..PLAIN
};

/// All peers, in the order of the report.
pub const ALL: &[Peer] = &[
    Peer {
        name: "neap",
        sources: &[Source::Neap { settings: &[] }],
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
                // Valgrind refuses the 256 GiB that its page map reserves. Its own switch for
                // emulators makes chunks 128 KiB instead of 16, so 32 GiB suffice; the fast path is
                // the same.
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

/// hardened_malloc in its two configurations. It is slow on purpose, so only the experiment about
/// memory errors compares with it unless it is named.
pub const HARDENED: &[Peer] = &[
    Peer {
        name: "hardened",
        sources: &[HARDENED_MALLOC],
    },
    Peer {
        name: "hardened-light",
        sources: &[HARDENED_MALLOC],
    },
];

/// Neap in modes other than its default. They take part only if they are named.
const MODES: &[Peer] = &[
    Peer {
        name: "neap-hardened",
        sources: &[Source::Neap {
            settings: &[("NEAP_HARDEN", "1")],
        }],
    },
    // At the profiler's default rate.
    Peer {
        name: "neap-sampled",
        sources: &[Source::Neap {
            settings: &[("NEAP_SAMPLE", "524288")],
        }],
    },
];

/// The crate's features, in `peers/NAME`, choose the configuration.
const HARDENED_MALLOC: Source = Source::Crate {
    version: "16.0.2026071503",
    build: Build {
        package: "hardened-malloc-sys",
        // C23's alignas, for compilers that have it in a header only.
        crate_flags: "-include stdalign.h",
        ..PLAIN
    },
};

/// The peer with that name.
pub fn find(name: &str) -> Option<&'static Peer> {
    every().find(|p| p.name == name)
}

/// The peers named in `only`, or [`ALL`] if `only` is empty.
///
/// # Errors
/// If a name in `only` is no peer.
pub fn select(only: &[String]) -> anyhow::Result<Vec<&'static Peer>> {
    match only {
        [] => Ok(ALL.iter().collect()),
        _ => select_with_hardened(only),
    }
}

/// The peers named in `only`, or all, [`HARDENED`] among them, if `only` is empty.
///
/// # Errors
/// If a name in `only` is no peer.
pub fn select_with_hardened(only: &[String]) -> anyhow::Result<Vec<&'static Peer>> {
    match only {
        [] => Ok(ALL.iter().chain(HARDENED).collect()),
        _ => choose("peer", only, every().collect(), |peer| peer.name),
    }
}

fn every() -> impl Iterator<Item = &'static Peer> {
    ALL.iter().chain(HARDENED).chain(MODES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_peer_is_refused() {
        assert!(select(&["dlmalloc".into()]).is_err());
        assert_eq!(select(&[]).unwrap().len(), ALL.len());
        let named = select(&["hardened".into(), "neap".into()]).unwrap();
        assert_eq!(
            named.iter().map(|peer| peer.name).collect::<Vec<_>>(),
            ["neap", "hardened"]
        );
        let most = ALL.len() + HARDENED.len();
        assert_eq!(select_with_hardened(&[]).unwrap().len(), most);
    }
}
