//! The allocators that are compared, as data: where each is found or what it is built from.

mod locate;
mod obtain;

pub use locate::{Places, Ready, locate};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_peer_is_refused() {
        assert!(select(&["dlmalloc".into()]).is_err());
        assert_eq!(select(&[]).unwrap().len(), ALL.len());
    }
}
