//! Pushes profiles to Pyroscope: at each interval, the profile of each process that samples goes to
//! the server's ingest API.

use super::pprof::{self, Kind};
use super::watched::Watched;
use crate::attach::Target;
use crate::failure::{Failure, shown};
use crate::profile::Base;
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::Response;

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);
/// How long to wait before each further attempt, after a failure that may pass.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// The most bytes of an error's explanation to read.
const EXPLANATION: u64 = 300;

/// Sends profiles.
pub struct Pusher {
    watched: Arc<Watched>,
    /// The server's URL, without a final slash.
    url: String,
    agent: Agent,
    /// What each process had allocated when its last profile was sent.
    bases: HashMap<i32, Base>,
    /// The end of the last round, in ms since 1970.
    looked_ms: u64,
    fails: bool,
}

impl Pusher {
    /// Sends the profiles of these processes to the server at `url`.
    pub fn new(watched: Arc<Watched>, url: &str) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(ATTEMPT))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("neap/", env!("CARGO_PKG_VERSION")));
        Self {
            watched,
            url: url.trim_end_matches('/').to_owned(),
            agent: config.build().new_agent(),
            bases: HashMap::new(),
            looked_ms: crate::profile::now_ms(),
            fails: false,
        }
    }

    /// Sends at each interval, and never returns.
    pub fn run(mut self, interval: Duration) -> ! {
        loop {
            let next = Instant::now() + interval;
            self.round();
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Sends one profile of each process. The first failure ends the round. It is reported once,
    /// until the server takes a profile again.
    fn round(&mut self) {
        let began_ms = crate::profile::now_ms();
        let outcome = self.watched.targets().and_then(|targets| {
            self.bases
                .retain(|&pid, _| targets.iter().any(|target| target.pid == pid));
            targets.iter().try_for_each(|target| self.one(target))
        });
        self.looked_ms = began_ms;
        if let Err(failure) = outcome
            && !std::mem::replace(&mut self.fails, true)
        {
            say!("{failure}; neap tries again at each interval, and loses no allocation meanwhile");
        }
    }

    /// Sends the profile of one process, if it samples. A process that cannot be read, or has
    /// ended, is not a failure of the server.
    fn one(&mut self, target: &Target) -> Result<(), Failure> {
        let Ok(Some((bytes, now))) = sampled(target.pid) else {
            return Ok(());
        };
        let fresh = now.beginning_after(self.looked_ms);
        let base = self.bases.get(&target.pid).or(fresh.as_ref());
        // The time of what it allocated before neap first read it is not known.
        let profile = base
            .unwrap_or(&now)
            .profile(bytes, target.pid.unsigned_abs());
        let Ok(profile) = profile.map(|profile| profile.called(&target.name)) else {
            return Ok(());
        };
        let place = format!(
            "{}/ingest?name={}&from={}&until={}&format=pprof&spyName=neap",
            self.url,
            application(&target.name),
            profile.began_ms / 1000,
            profile.ended_ms / 1000,
        );
        self.send(&place, &pprof::encoded(&profile, Kind::Heap))?;
        self.bases.insert(target.pid, now);
        if std::mem::take(&mut self.fails) {
            say!("{} takes profiles again", self.url);
        }
        Ok(())
    }

    /// Sends a profile, up to three times.
    fn send(&self, place: &str, body: &[u8]) -> Result<(), Failure> {
        let mut pauses = PAUSES.iter();
        loop {
            let request = self.agent.post(place);
            let response = request.content_type("application/octet-stream").send(body);
            let (why, may_pass) = match response {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => {
                    let status = response.status();
                    let may_pass =
                        status.is_server_error() || [408, 429].contains(&status.as_u16());
                    (explained(response), may_pass)
                }
                Err(error) => (error.to_string(), true),
            };
            match pauses.next().filter(|_| may_pass) {
                Some(&pause) => thread::sleep(pause),
                None => return Err(failure!("cannot push a profile to {}: {why}", self.url)),
            }
        }
    }
}

/// The bytes of a process's region and what they say was allocated; `None` if it does not sample.
fn sampled(pid: i32) -> Result<Option<(Vec<u8>, Base)>, Failure> {
    let Some(region) = pprof::sampling(pid)? else {
        return Ok(None);
    };
    let bytes = region.read()?;
    let base = Base::of(&bytes)?;
    Ok(Some((bytes, base)))
}

/// The status and the first line of the body.
fn explained(response: Response<ureq::Body>) -> String {
    let status = response.status();
    let mut text = Vec::new();
    let body = response.into_body().into_reader();
    // If the body cannot be read, the status alone explains.
    let _ = body.take(EXPLANATION).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    match text.lines().next() {
        Some(line) => format!("{status}: {}", shown(line)),
        None => status.to_string(),
    }
}

/// A program's name as Pyroscope allows one, which needs no escapes in a URL.
fn application(name: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let clean = name.chars();
    let clean = clean.map(|letter| if allowed(letter) { letter } else { '_' });
    match name {
        "" => "unknown".to_owned(),
        _ => clean.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_are_those_that_pyroscope_takes() {
        for (name, expected) in [
            ("redis-server", "redis-server"),
            ("python3.11", "python3.11"),
            ("a b{c=\"d\"}&e\u{e9}", "a_b_c__d___e_"),
            ("", "unknown"),
        ] {
            assert_eq!(application(name), expected);
        }
    }
}
