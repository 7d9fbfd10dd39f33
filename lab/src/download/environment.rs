//! The Python packages of the download, the server's certificate, and the server. Packages and
//! certificate are made on first use under a temporary name, which is renamed when everything is
//! there.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::command::finished;
use crate::peers::Places;

const REQUIREMENTS: &str = include_str!("../../download/requirements.txt");
const VERSIONS: &str = include_str!("../../download/versions.py");
const CERTIFICATE: &str = include_str!("../../download/certificate.py");

const NO_PYTHON: &str = "python3 does not run; the download needs CPython 3.11 or newer with its \
                         venv module (Debian: apt-get install python3-venv)";
const NO_VENV: &str = "python3 cannot make a virtual environment; its venv module is perhaps a \
                       package of its own (Debian: apt-get install python3-venv)";
const NO_PACKAGES: &str = "pip cannot install the packages of lab/download/requirements.txt. This \
                           is needed once, and needs the package index: try again where there is \
                           network (neap-lab download --prepare), or name a folder with the wheels \
                           (PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER)";

/// A working environment.
pub struct Environment {
    folder: PathBuf,
    /// The versions of Python and of the packages, for the record.
    pub versions: String,
}

/// Whether a missing environment may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// From the package index.
    Allowed,
    /// Nothing may be downloaded.
    Forbidden,
}

/// The result of getting an environment.
pub enum Outcome {
    /// It works.
    Ready(Environment),
    /// There is none, and making one was forbidden.
    Absent,
}

impl Environment {
    /// The environment in `folder`. Makes it if necessary and allowed, and announces that through
    /// `say`.
    ///
    /// # Errors
    /// If it cannot be made; the error says what is missing and what to do. A partial environment
    /// is removed.
    pub fn get(folder: &Path, making: Making, say: &dyn Fn(&str)) -> anyhow::Result<Outcome> {
        if let Ok(environment) = Environment::open(folder) {
            return Ok(Outcome::Ready(environment));
        }
        if making == Making::Forbidden {
            return Ok(Outcome::Absent);
        }
        let shown = folder.display();
        say(&format!(
            "setting up Python packages in {shown} (once, from the package index)"
        ));
        make(folder)?;
        let environment = Environment::open(folder)
            .with_context(|| format!("the packages in {shown} do not work"))?;
        Ok(Outcome::Ready(environment))
    }

    fn open(folder: &Path) -> anyhow::Result<Environment> {
        let mut environment = Environment {
            folder: folder.to_path_buf(),
            versions: String::new(),
        };
        for file in [environment.certificate(), environment.key()] {
            ensure!(file.is_file(), "no {file:?}");
        }
        let versions = finished(environment.program(VERSIONS))?;
        environment.versions = versions.trim().to_string();
        Ok(environment)
    }

    /// The interpreter that finds the packages.
    pub fn python(&self) -> PathBuf {
        python(&self.folder)
    }

    /// The server's certificate, which the client trusts.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// The server's key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("key.pem")
    }

    /// A command that runs the Python `source` without the user's own settings for Python.
    pub fn program(&self, source: &str) -> Command {
        program(&self.folder, source)
    }
}

/// The default place of the environment: beside the peers' builds. Its name changes with the
/// packages, so that an old one is not mistaken for the new.
pub fn default_folder(places: &Places) -> PathBuf {
    let fnv1a = REQUIREMENTS.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let name = format!("download/python-{fnv1a:08x}");
    places.peers.with_file_name(name)
}

fn python(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

fn program(folder: &Path, source: &str) -> Command {
    let mut command = Command::new(python(folder));
    command.args(["-I", "-c", source]);
    command
}

/// A directory under construction, removed unless it is finished.
struct Part(PathBuf);

impl Part {
    /// A directory beside `folder`, so that finishing is a rename.
    fn beside(folder: &Path) -> anyhow::Result<Part> {
        let name = folder.file_name().context("the folder has no name")?;
        let parent = folder.parent().context("the folder has no parent")?;
        fs::create_dir_all(parent).with_context(|| format!("cannot make the folder {parent:?}"))?;
        let prefix = format!("{}.part-", name.to_string_lossy());
        remove_left_over(parent, &prefix);
        Ok(Part(parent.join(format!("{prefix}{}", std::process::id()))))
    }

    fn finish(self, folder: &Path) -> anyhow::Result<()> {
        remove_broken(folder)?;
        fs::rename(&self.0, folder).with_context(|| format!("cannot make {folder:?}"))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Missing if it was finished or never begun.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes partial directories of processes that were killed while building.
fn remove_left_over(parent: &Path, prefix: &str) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let builder = name
            .strip_prefix(prefix)
            .and_then(|id| id.parse::<u32>().ok());
        let ended = |id: u32| !Path::new(&format!("/proc/{id}")).exists();
        if builder.is_some_and(ended) {
            // A directory that cannot be removed does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes an environment that no longer works, because its Python is gone; leaves any other alone.
fn remove_broken(folder: &Path) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let ours = folder.join("pyvenv.cfg").is_file() && folder.join("certificate.pem").is_file();
    let empty = fs::read_dir(folder)?.next().is_none();
    ensure!(
        ours || empty,
        "{folder:?} is there already and holds something else"
    );
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {folder:?}"))
}

fn make(folder: &Path) -> anyhow::Result<()> {
    finished(python3(&[
        "-c",
        "import sys; assert sys.version_info >= (3, 11)",
    ]))
    .context(NO_PYTHON)?;
    let part = Part::beside(folder)?;
    let new = part.0.as_path();
    finished(python3(&["-m", "venv"]).arg(new)).context(NO_VENV)?;
    let requirements = new.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    let mut pip = Command::new(python(new));
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
    ]);
    finished(pip.arg(&requirements)).context(NO_PACKAGES)?;
    let mut certificate = program(new, CERTIFICATE);
    certificate
        .arg(new.join("key.pem"))
        .arg(new.join("certificate.pem"));
    finished(&mut certificate).context("cannot make the server's certificate")?;
    // Another process may have finished one first, and use it.
    if Environment::open(folder).is_ok() {
        return Ok(());
    }
    part.finish(folder)
}

fn python3(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(arguments);
    command
}

const SERVER: &str = include_str!("../../download/server.py");

/// A running server. It ends when this value is dropped. If the lab is killed, the server's
/// standard input closes and it ends itself.
pub struct Server {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    /// Starts one whose body has `megabytes`.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(environment: &Environment, megabytes: u64) -> anyhow::Result<Server> {
        let mut command = environment.program(SERVER);
        command
            .arg(environment.key())
            .arg(environment.certificate())
            .arg(megabytes.to_string())
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot run the server")?;
        let questions = process.stdin.take().context("the server has no input")?;
        let answers = process.stdout.take().context("the server has no output")?;
        let mut server = Server {
            process,
            questions,
            answers: BufReader::new(answers),
            port: 0,
        };
        server.port = server
            .answer("port")?
            .parse()
            .context("the server tells no port")?;
        Ok(server)
    }

    /// The body's URL.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/", self.port)
    }

    /// The CRC-32 of the first `bytes` of the body.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn crc32(&mut self, bytes: u64) -> anyhow::Result<u32> {
        writeln!(self.questions, "{bytes}").context("the server has ended")?;
        self.answer("crc32")?
            .parse()
            .context("the server tells no checksum")
    }

    fn answer(&mut self, key: &str) -> anyhow::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let value = line.trim().strip_prefix(key);
        let value = value.and_then(|rest| rest.strip_prefix('='));
        Ok(value
            .with_context(|| format!("the server does not tell {key}, but {line:?}"))?
            .to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already, which is the goal.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("neap-lab-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn an_unfinished_folder_is_removed_and_a_finished_one_stays() {
        let home = folder("part");
        let target = home.join("python");
        let part = Part::beside(&target).unwrap();
        fs::create_dir(&part.0).unwrap();
        drop(part);
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
        let part = Part::beside(&target).unwrap();
        fs::create_dir(&part.0).unwrap();
        part.finish(&target).unwrap();
        assert!(target.is_dir());
        assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn what_a_dead_builder_left_is_removed_and_a_living_ones_is_not() {
        let home = folder("left");
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = home.join(format!("python.part-{}", child.id()));
        let alive = home.join("python.part-1");
        fs::create_dir(&dead).unwrap();
        fs::create_dir(&alive).unwrap();
        Part::beside(&home.join("python")).unwrap();
        assert!(!dead.exists() && alive.exists());
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_folder_of_others_is_never_removed() {
        let home = folder("others");
        fs::write(home.join("letter"), "dear").unwrap();
        let refused = remove_broken(&home).unwrap_err().to_string();
        assert!(refused.contains("something else"), "{refused}");
        assert!(home.join("letter").is_file());
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn every_requirement_is_pinned() {
        let pinned = |line: &&str| line.split_once("==").is_some_and(|(_, v)| !v.is_empty());
        let lines: Vec<&str> = REQUIREMENTS
            .lines()
            .filter(|l| !l.starts_with('#'))
            .collect();
        assert!(lines.len() > 3 && lines.iter().all(pinned), "{lines:?}");
    }
}
