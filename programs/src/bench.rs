//! Shared by all tests of a run: the files under test, the tier, the scratch directory.

use crate::outcome::Outcome;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How much work the programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Every program briefly: the default.
    Quick,
    /// The sizes that the project promises: `TEST_TIER=full`.
    Full,
}

impl Tier {
    fn from_environment() -> Outcome<Self> {
        let word = env::var_os("TEST_TIER").unwrap_or("quick".into());
        match word.to_str() {
            Some("quick") => Ok(Self::Quick),
            Some("full") => Ok(Self::Full),
            _ => Err(format!("TEST_TIER is quick or full, not {}", word.display()).into()),
        }
    }

    /// The size for this tier.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// Shared by all tests of a run. Dropping it removes the scratch directory.
pub struct Bench {
    /// How much work the programs do.
    pub tier: Tier,
    /// The library under test: a copy that every user may read.
    pub library: PathBuf,
    /// The witness: a copy that every user may run.
    pub witness: PathBuf,
    /// A directory kept between runs, for results that do not depend on the allocator and are slow
    /// to make.
    pub cache: PathBuf,
    scratch: PathBuf,
}

impl Bench {
    /// Copies the library (`LIBRARY_UNDER_TEST`, or the one that cargo built beside the test) and
    /// the witness to a new scratch directory. A server's own user can read the copies, and they do
    /// not change if cargo builds again meanwhile.
    ///
    /// # Errors
    /// If there is no library, or the scratch directory cannot be filled.
    pub fn new(witness: &Path, cache: &Path) -> Outcome<Self> {
        let tier = Tier::from_environment()?;
        let built = library_under_test()?;
        let scratch = env::temp_dir().join(format!("neap-programs-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        fs::set_permissions(&scratch, fs::Permissions::from_mode(0o755))?;
        let bench = Self {
            tier,
            library: scratch.join("libneap.so"),
            witness: scratch.join("witness"),
            cache: cache.to_owned(),
            scratch,
        };
        copy_for_all(&built, &bench.library)?;
        copy_for_all(witness, &bench.witness)?;
        Ok(bench)
    }

    /// A new, empty directory in the scratch directory.
    ///
    /// # Errors
    /// If it exists already or cannot be made.
    pub fn new_directory(&self, name: &str) -> Outcome<PathBuf> {
        let directory = self.scratch.join(name);
        fs::create_dir(&directory)?;
        Ok(directory)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        remove(&self.scratch);
    }
}

/// Removes a directory that dying processes may still be writing to.
pub fn remove(directory: &Path) {
    for _ in 0..50 {
        if fs::remove_dir_all(directory).is_ok() || !directory.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    eprintln!("could not remove {}", directory.display());
}

fn copy_for_all(from: &Path, to: &Path) -> Outcome<()> {
    fs::copy(from, to).map_err(|e| format!("{}: {e}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn library_under_test() -> Outcome<PathBuf> {
    if let Some(named) = env::var_os("LIBRARY_UNDER_TEST") {
        return Ok(PathBuf::from(named));
    }
    let test = env::current_exe()?;
    let beside = test.parent().unwrap_or(Path::new("."));
    let places = [beside.join("libneap_c.so"), beside.join("../libneap_c.so")];
    let found = places.iter().find(|place| place.is_file());
    found.cloned().ok_or_else(|| {
        format!(
            "no libneap_c.so in {} or above it: set LIBRARY_UNDER_TEST",
            beside.display()
        )
        .into()
    })
}
