//! Heap profiles at the paths of Go's `net/http/pprof`. Both paths serve the same profile, with
//! live and allocated figures: everything sampled or, like Go with `?seconds=N`, the samples of
//! that time.

use super::http::{Client, Request, Response, Status};
use super::watched::{MOST_SESSIONS, Watched};
use crate::attach::{Process, Region, Target};
use crate::failure::Failure;
use crate::profile::{self, Profile, Waiter, Wish, pprof};
use std::str::FromStr;
use std::time::Duration;

/// The longest time to sample for a request, in seconds.
const LONGEST: u64 = 600;
/// When the client should retry after too many sessions, in seconds.
const RETRY: &str = "10";

/// The query parameters.
#[derive(Debug)]
struct Asked {
    pid: Option<i32>,
    seconds: u64,
}

impl Asked {
    fn of(request: &Request) -> Result<Asked, Refusal> {
        let seconds = number(request, "seconds")?.unwrap_or(0);
        if seconds > LONGEST {
            let why = format!("{seconds} seconds are too many: ask for {LONGEST} at most");
            return Err(Refusal(Status::BAD_REQUEST, why));
        }
        let pid = number(request, "pid")?;
        Ok(Asked { pid, seconds })
    }
}

/// The value of a query parameter, which may be given once.
fn number<N: FromStr>(request: &Request, name: &str) -> Result<Option<N>, Refusal> {
    let mut values = request.query.iter().filter(|pair| pair.0 == name);
    match (values.next().map(|pair| pair.1.parse()), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(number)), None) => Ok(Some(number)),
        (Some(_), _) => {
            let why = format!("{name}= takes one number");
            Err(Refusal(Status::BAD_REQUEST, why))
        }
    }
}

/// Why there is no profile.
struct Refusal(Status, String);

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal(Status::NOT_FOUND, failure.to_string())
    }
}

/// The profile of a process.
pub fn heap(watched: &Watched, request: &Request, client: &Client) -> Response {
    let profile = Asked::of(request).and_then(|asked| asked_for(watched, &asked, client));
    match profile {
        Ok(bytes) => Response::new("application/octet-stream", bytes)
            .with("content-disposition", "attachment; filename=\"heap.pb.gz\""),
        Err(Refusal(Status::UNAVAILABLE, why)) => {
            Response::refusal(Status::UNAVAILABLE, &why).with("retry-after", RETRY)
        }
        Err(Refusal(status, why)) => Response::refusal(status, &why),
    }
}

fn asked_for(watched: &Watched, asked: &Asked, client: &Client) -> Result<Vec<u8>, Refusal> {
    let pid = one(watched, asked.pid)?;
    watched.status_page(pid)?;
    let process = Process::open(pid)?;
    if asked.seconds == 0 {
        return Ok(whole(&process)?);
    }
    let _seat = watched.session().ok_or_else(too_many)?;
    let target = Target::of(&process);
    let wish = Wish {
        time: Some(Duration::from_secs(asked.seconds)),
        rate: None,
        waiter: Waiter::Client(&|| client.has_left()),
    };
    match profile::gather(&target, wish) {
        Err(_) if client.has_left() => {
            let why = "the server ends".to_owned();
            Err(Refusal(Status::UNAVAILABLE, why))
        }
        gathered => Ok(pprof::encode(&gathered?)),
    }
}

fn too_many() -> Refusal {
    let why = format!(
        "{MOST_SESSIONS} requests with seconds= are in progress, the most at a time: ask again when one has ended"
    );
    Refusal(Status::UNAVAILABLE, why)
}

/// The requested process, or the only one.
fn one(watched: &Watched, pid: Option<i32>) -> Result<i32, Refusal> {
    if let Some(pid) = pid {
        return Ok(pid);
    }
    match watched.targets()?.as_slice() {
        [target] => Ok(target.pid),
        [] => Err(Refusal(
            Status::NOT_FOUND,
            "there is no process under Neap".into(),
        )),
        several => Err(Refusal(
            Status::BAD_REQUEST,
            format!(
                "say which process: add ?pid= and one of {}",
                listed(several)
            ),
        )),
    }
}

fn listed(targets: &[Target]) -> String {
    let titles: Vec<String> = targets.iter().map(Target::title).collect();
    titles.join(", ")
}

/// Everything that the process sampled.
fn whole(process: &Process) -> Result<Vec<u8>, Failure> {
    let pid = process.pid();
    let region = Region::open(pid)?;
    if region.head()?.rate == 0 {
        return Err(failure!(
            "sampling is switched off in process {pid}: add seconds=30 to sample for 30 seconds"
        ));
    }
    let profile = Profile::from_region_of(&region.read()?, pid.unsigned_abs())?;
    Ok(pprof::encode(&profile.called(&process.name())))
}
