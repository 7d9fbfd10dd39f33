//! Builds the peers that are not installed, each into one shared library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{Archive, Build, Peer, Root, Source};
use crate::command::{finished, of_words};

use super::locate::{Places, Ready, built_library, counted_library, locate_source};

/// The first available source of the peer, built if necessary. Announces its work through `say`.
///
/// # Errors
/// If no source is available; the error gives all reasons.
pub fn obtain(peer: &'static Peer, places: &Places, say: &dyn Fn(&str)) -> anyhow::Result<Ready> {
    let mut reasons = Vec::new();
    for source in &peer.sources {
        let built = match locate_source(peer, source, places) {
            Ok(ready) => return Ok(ready),
            Err(_) => make(peer, source, places, say),
        };
        match built.and_then(|()| locate_source(peer, source, places)) {
            Ok(ready) => return Ok(ready),
            Err(reason) => reasons.push(format!("{reason:#}")),
        }
    }
    bail!("{}", reasons.join("; "))
}

/// Builds a source that can be built. Others can only be found.
fn make(peer: &Peer, source: &Source, places: &Places, say: &dyn Fn(&str)) -> anyhow::Result<()> {
    match source {
        Source::Wheel {
            package,
            version,
            member,
        } => {
            say(&format!("unpacking {package} {version}"));
            let folder = places.peers.join("build").join(&peer.name);
            let library = built_library(peer, version, places);
            let file = unpack_wheel(&format!("{package}=={version}"), &folder)?.join(member);
            fs::copy(file, library).with_context(|| format!("no {member} in the wheel"))?;
            Ok(())
        }
        Source::Crate { version, build } => {
            say(&format!("building {} {version}", build.package));
            let built = build_crate(&peer.name, build, places)?;
            say(&format!("linking {} {version}", peer.name));
            link(build, &built, &[], &built_library(peer, version, places))?;
            if build.emulator_flags.is_empty() {
                return Ok(());
            }
            let counted = counted_library(peer, version, places);
            link(build, &built, &build.emulator_flags, &counted)
        }
        Source::System { .. } | Source::CLibrary | Source::Neap { .. } => Ok(()),
    }
}

/// Downloads a wheel and unpacks it into `folder`.
fn unpack_wheel<'a>(requirement: &str, folder: &'a Path) -> anyhow::Result<&'a Path> {
    fs::create_dir_all(folder)?;
    let mut pip = of_words("python3 -m pip download --quiet --no-deps --only-binary=:all: --dest");
    finished(pip.arg(folder).arg(requirement))?;
    let wheel = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip left no wheel")?;
    finished(of_words("python3 -m zipfile -e").arg(wheel).arg(folder))?;
    Ok(folder)
}

/// Cargo's report about a crate with a build script.
struct CrateBuilt {
    package: PathBuf,
    out: PathBuf,
    archive: PathBuf,
}

/// Builds `lab/peers/NAME`, for the sake of its dependency's build script.
fn build_crate(name: &str, build: &Build, places: &Places) -> anyhow::Result<CrateBuilt> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers")
        .join(name)
        .join("Cargo.toml");
    let mut cargo =
        of_words("cargo build --release --locked --message-format=json --manifest-path");
    cargo.arg(&manifest);
    cargo.env("CARGO_TARGET_DIR", places.peers.join("build").join(name));
    cargo
        .env("CFLAGS", &build.crate_flags)
        .env("CXXFLAGS", &build.crate_flags);
    let messages = finished(&mut cargo)?;
    crate_built(&messages, &build.package)
        .with_context(|| format!("cargo does not tell where {} was built", build.package))
}

fn crate_built(messages: &str, package: &str) -> Option<CrateBuilt> {
    let messages: Vec<Value> = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let of_package = |message: &&Value| {
        message["package_id"]
            .as_str()
            .is_some_and(|id| id.contains(&format!("#{package}@")))
    };
    let script = messages
        .iter()
        .filter(of_package)
        .find(|m| m["reason"] == "build-script-executed")?;
    let source = messages
        .iter()
        .filter(of_package)
        .find_map(|m| m["manifest_path"].as_str())?;
    Some(CrateBuilt {
        package: Path::new(source).parent()?.to_path_buf(),
        out: PathBuf::from(script["out_dir"].as_str()?),
        archive: static_library(script, package)?,
    })
}

/// The static library that a build script reports: the one with the package's name, or the first.
fn static_library(script: &Value, package: &str) -> Option<PathBuf> {
    let strings = |key: &str| -> Vec<String> {
        let list = script[key].as_array().cloned().unwrap_or_default();
        list.iter()
            .filter_map(|item| Some(item.as_str()?.to_string()))
            .collect()
    };
    let (paths, libraries) = (strings("linked_paths"), strings("linked_libs"));
    let names = libraries
        .iter()
        .filter_map(|lib| lib.strip_prefix("static="));
    let own_name = package.trim_end_matches("-sys").replace('-', "_");
    let (own, others): (Vec<&str>, Vec<&str>) = names.partition(|name| *name == own_name);
    own.into_iter().chain(others).find_map(|lib| {
        let file = format!("lib{lib}.a");
        let folder = |path: &String| PathBuf::from(path.strip_prefix("native=").unwrap_or(path));
        paths
            .iter()
            .map(|path| folder(path).join(&file))
            .find(|path| path.is_file())
    })
}

fn link(
    build: &Build,
    built: &CrateBuilt,
    extra_flags: &[String],
    library: &Path,
) -> anyhow::Result<()> {
    let root = match build.root {
        Root::Package => &built.package,
        Root::Out => &built.out,
    };
    let compiler = if build.sources.is_empty() {
        "cc"
    } else {
        "c++"
    };
    let mut compiler = Command::new(compiler);
    compiler.args("-shared -fPIC -O3 -DNDEBUG -ftls-model=initial-exec -o".split(' '));
    compiler.arg(library);
    compiler.args(
        build
            .includes
            .iter()
            .map(|folder| format!("-I{}", root.join(folder).display())),
    );
    compiler.args(build.sources.iter().map(|source| root.join(source)));
    match build.archive {
        Archive::Whole => {
            compiler
                .arg("-Wl,--whole-archive")
                .arg(&built.archive)
                .arg("-Wl,--no-whole-archive");
        }
        Archive::Needed => {
            compiler.arg(&built.archive);
        }
        Archive::None => {}
    }
    compiler.args(&build.flags).args(extra_flags);
    finished(&mut compiler)?;
    ensure_exports_malloc(library).inspect_err(|_| {
        // Or the next search finds it.
        let _ = fs::remove_file(library);
    })
}

/// A library that lost its malloc in the link would be preloaded without any effect.
fn ensure_exports_malloc(library: &Path) -> anyhow::Result<()> {
    let symbols = finished(of_words("nm -D --defined-only").arg(library))?;
    for name in "malloc free calloc realloc posix_memalign aligned_alloc".split(' ') {
        let exported = symbols
            .lines()
            .any(|line| line.split_whitespace().nth(2) == Some(name));
        ensure!(exported, "{library:?} does not export {name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_messages_are_understood() {
        let folder = std::env::temp_dir().join(format!("neap-lab-obtain-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let archive = folder.join("libx.a");
        for name in ["liba_test.a", "libx.a"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let messages = format!(
            "{}\nnot json\n{}\n",
            serde_json::json!({"reason": "compiler-artifact",
                "package_id": "registry+i#x-sys@1.0.0",
                "manifest_path": "/src/x-sys-1.0.0/Cargo.toml"}),
            serde_json::json!({"reason": "build-script-executed",
                "package_id": "registry+i#x-sys@1.0.0",
                "linked_libs": ["pthread", "static=a_test", "static=x"], "out_dir": "/out",
                "linked_paths": [format!("native={}", folder.display())]}),
        );
        let built = crate_built(&messages, "x-sys").unwrap();
        assert_eq!(built.package, Path::new("/src/x-sys-1.0.0"));
        assert_eq!((built.out, built.archive), (PathBuf::from("/out"), archive));
        assert!(crate_built(&messages, "y-sys").is_none());
        fs::remove_dir_all(folder).unwrap();
    }
}
