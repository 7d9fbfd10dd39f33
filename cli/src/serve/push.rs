//! Pushes profiles to Pyroscope: at each interval, the profile of each process that samples goes to
//! the server's ingest API.

use super::pprof::{self, Kind};
use super::watched::Watched;
use crate::failure::{Failure, shown};
use crate::grammar::without_credentials;
use crate::profile::{Base, Profile};
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
    /// The same for messages, without a name and a password.
    shown_url: String,
    agent: Agent,
    /// What each process had allocated when the server took its last profile, or before that when
    /// neap saw the process first.
    bases: HashMap<i32, Base>,
    /// When the last round began, in ms since 1970. A round looks at every process.
    looked_ms: u64,
    fails: bool,
}

/// Why the server took no profile.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// It refuses this profile.
    Profile(String),
    /// It takes none now.
    All(String),
}

impl Pusher {
    /// Sends the profiles of these processes to the server at `url`.
    pub fn new(watched: Arc<Watched>, url: &str) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(ATTEMPT))
            .http_status_as_error(false)
            .max_redirects(0)
            // One from the environment would get the credentials, and cannot reach an agent here.
            .proxy(None)
            .user_agent(concat!("neap/", env!("CARGO_PKG_VERSION")));
        let url = url.trim_end_matches('/');
        Self {
            watched,
            url: url.to_owned(),
            shown_url: without_credentials(url),
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

    /// Sends one profile of each process. The first failure is reported once, until a round in
    /// which the server takes all profiles.
    fn round(&mut self) {
        match self.all() {
            Ok(0) => {}
            Ok(_) => {
                if std::mem::take(&mut self.fails) {
                    say!("{} takes profiles again", self.shown_url);
                }
            }
            Err(failure) => {
                if !std::mem::replace(&mut self.fails, true) {
                    say!(
                        "{failure}; neap tries again at each interval, with what was allocated \
                         meanwhile"
                    );
                }
            }
        }
    }

    /// Looks at each process and sends its profile, until the server takes none. How many it took,
    /// or the first failure.
    fn all(&mut self) -> Result<usize, Failure> {
        let began_ms = crate::profile::now_ms();
        let targets = self.watched.targets()?;
        self.bases
            .retain(|&pid, _| targets.iter().any(|target| target.pid == pid));
        let (mut taken, mut failure, mut takes_none) = (0, None, false);
        for target in &targets {
            // A process that cannot be read, does not sample, or has ended is no failure.
            let Ok(Some((bytes, now))) = sampled(target.pid) else {
                continue;
            };
            // Each process gets a base before anything can fail, so that a later profile has what
            // it allocates until then.
            let base = self.base(target.pid, &now);
            if takes_none {
                continue;
            }
            let profile = base.profile(bytes, target.pid.unsigned_abs());
            let Ok(profile) = profile.map(|profile| profile.called(&target.name)) else {
                continue;
            };
            match self.send(&self.place(&profile), &pprof::encoded(&profile, Kind::Heap)) {
                Ok(()) => {
                    self.bases.insert(target.pid, now);
                    taken += 1;
                }
                Err(refusal) => {
                    takes_none = matches!(refusal, Refusal::All(_));
                    failure.get_or_insert(refusal);
                }
            }
        }
        self.looked_ms = began_ms;
        match failure {
            Some(Refusal::Profile(why) | Refusal::All(why)) => Err(failure!(
                "cannot push a profile to {}: {why}",
                self.shown_url
            )),
            None => Ok(taken),
        }
    }

    /// The base of a process's next profile. The time of what the process allocated before neap
    /// first read it is not known, unless it began to sample after the last round.
    fn base(&mut self, pid: i32, now: &Base) -> &Base {
        let looked_ms = self.looked_ms;
        self.bases.entry(pid).or_insert_with(|| {
            now.beginning_after(looked_ms)
                .unwrap_or_else(|| now.clone())
        })
    }

    /// Where to send a profile.
    fn place(&self, profile: &Profile) -> String {
        format!(
            "{}/ingest?name={}&from={}&until={}&format=pprof&spyName=neap",
            self.url,
            application(&profile.program),
            profile.began_ms / 1000,
            profile.ended_ms / 1000,
        )
    }

    /// Sends a profile, up to three times.
    fn send(&self, place: &str, body: &[u8]) -> Result<(), Refusal> {
        let mut pauses = PAUSES.iter();
        loop {
            let request = self.agent.post(place);
            let response = request.content_type("application/octet-stream").send(body);
            let refusal = match response {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => refusal(response),
                // The error may quote the URL.
                Err(error) => Refusal::All(error.to_string().replace(&self.url, &self.shown_url)),
            };
            match (&refusal, pauses.next()) {
                (Refusal::All(_), Some(&pause)) => thread::sleep(pause),
                _ => return Err(refusal),
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

/// What an answer without success means.
fn refusal(response: Response<ureq::Body>) -> Refusal {
    let status = response.status();
    let may_pass = status.is_server_error() || [408, 429].contains(&status.as_u16());
    let why = explained(response);
    if may_pass {
        Refusal::All(why)
    } else {
        Refusal::Profile(why)
    }
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
