//! Builds the write-up's program from source.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::programs::which;

const SOURCE: &str = include_str!("../../tide/tide.go");

/// The program, and the version of Go that built it.
pub fn build(folder: &Path) -> anyhow::Result<(PathBuf, String)> {
    let go = which("go").context("go is not installed")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {folder:?}"))?;
    let (source, program) = (folder.join("tide.go"), folder.join("tide-go"));
    std::fs::write(&source, SOURCE).with_context(|| format!("cannot write {source:?}"))?;
    let mut command = Command::new(&go);
    // Nothing is downloaded: the source needs only the standard library.
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off");
    command
        .args(["build", "-o"])
        .args([&program, &source])
        .current_dir(folder);
    let output = command.output().context("cannot run go")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "go build: {}",
        errors.lines().last().unwrap_or("failed")
    );
    Ok((program, version(&go)?))
}

/// Such as `go1.26.8`.
fn version(go: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(go);
    let output = command
        .env("GOTOOLCHAIN", "local")
        .args(["env", "GOVERSION"])
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}
