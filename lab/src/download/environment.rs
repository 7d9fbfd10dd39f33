//! The Python packages of the download and the server's certificate, which the case in
//! `lab/download` lists; and the HTTPS server, a Python process without a preload.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;

use crate::cases::case::{Case, Home};
use crate::cases::install;
use crate::command::finished;
use crate::peers::locate::Places;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/download");
const VERSIONS: &str = include_str!("../../download/versions.py");
const SERVER: &str = include_str!("../../download/server.py");

const NO_PACKAGES: &str = "cannot set up the Python packages. This is needed once, and needs CPython \
                           3.11 or newer with its venv module (Debian: apt-get install \
                           python3-venv) and the package index: try again where there is network \
                           (neap-lab download --prepare), or name a folder with the wheels \
                           (PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER)";

/// The environment of the client and the server.
pub struct Environment {
    case: Case,
    home: Home,
}

impl Environment {
    /// The environment in `folder`, or in the usual place. It may not be set up yet.
    ///
    /// # Errors
    /// If the case cannot be read.
    pub fn new(folder: Option<PathBuf>, places: &Places) -> anyhow::Result<Environment> {
        let case = Case::read(Path::new(FOLDER))?;
        let mut home = Home::of(&case, places)?;
        if let Some(folder) = folder {
            // The client and the server open files in it.
            home.env = std::path::absolute(folder)?;
        }
        Ok(Environment { case, home })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.home.env
    }

    /// Whether it is set up.
    pub fn is_ready(&self) -> bool {
        install::missing(&self.case, &self.home).is_none()
    }

    /// Sets it up, and announces that even without progress: something is downloaded and written.
    ///
    /// # Errors
    /// If a package cannot be obtained.
    pub fn set_up(&self) -> anyhow::Result<()> {
        install::install(&self.case, &self.home, &|what| eprintln!("{what}")).context(NO_PACKAGES)
    }

    /// The versions of Python and of the packages, for the record.
    ///
    /// # Errors
    /// If they do not work.
    pub fn versions(&self) -> anyhow::Result<String> {
        let told = finished(self.program(VERSIONS));
        let told =
            told.with_context(|| format!("remove {:?}: its packages fail", self.folder()))?;
        Ok(told.trim().to_string())
    }

    /// The interpreter that finds the packages.
    pub fn python(&self) -> PathBuf {
        self.home.env.join("bin/python3")
    }

    /// The server's certificate, which the client trusts.
    pub fn certificate(&self) -> PathBuf {
        self.home.env.join("certificate.pem")
    }

    /// A command that runs the Python `source` without the user's own settings for Python.
    pub fn program(&self, source: &str) -> Command {
        let mut command = Command::new(self.python());
        command.args(["-I", "-c", source]);
        command
    }
}

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
            .arg(environment.folder().join("key.pem"))
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

    #[test]
    fn every_requirement_is_pinned() {
        let case = Case::read(Path::new(FOLDER)).unwrap();
        let is_pinned = |package: &String| {
            let version = package.split_once("==");
            version.is_some_and(|(_, version)| !version.is_empty())
        };
        assert!(case.install.pip.len() > 3 && case.install.pip.iter().all(is_pinned));
    }
}
