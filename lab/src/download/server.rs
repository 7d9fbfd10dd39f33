//! The campaign's HTTPS server, a Python process without a preload.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::Context as _;

use super::environment::Environment;

const SOURCE: &str = include_str!("../../download/server.py");

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
        let mut command = environment.program(SOURCE);
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
