//! Heap profiles at the paths of Go's `net/http/pprof`. Both paths serve the same profile, with
//! live and allocated figures: everything sampled or, like Go with `?seconds=N`, the samples of
//! that time. The path decides which value a viewer shows first.

use super::http::{Client, Request, Response};
use super::watched::{MOST_SESSIONS, Watched};
use crate::attach::{Process, Region, Target};
use crate::failure::{Failure, shown};
use crate::profile::pprof::{Style, encode_as, legacy};
use crate::profile::{self, Profile, Waiter, Wish};
use std::str::FromStr;
use std::time::Duration;
use ureq::http::StatusCode;

/// The longest time to sample for a request, in seconds.
const LONGEST: u64 = 600;
/// When the client should retry after too many sessions, in seconds.
const RETRY: &str = "10";

/// Which value a viewer shows first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What is live.
    Heap,
    /// What was allocated.
    Allocs,
}

/// The path and the query parameters.
#[derive(Debug)]
pub struct Asked {
    kind: Kind,
    pid: Option<i32>,
    program: Option<String>,
    seconds: u64,
    /// As text, for people.
    is_text: bool,
}

impl Asked {
    /// Of a request, if its parameters make sense.
    pub fn of(request: &Request) -> Result<Asked, Response> {
        let seconds = number(request, "seconds")?.unwrap_or(0);
        if seconds > LONGEST {
            let why = format!("{seconds} seconds are too many: ask for {LONGEST} at most");
            return Err(Response::refusal(StatusCode::BAD_REQUEST, why));
        }
        let is_text = number(request, "debug")?.is_some_and(|debug: u64| debug > 0);
        if is_text && seconds > 0 {
            let why = "seconds= and debug= exclude each other";
            return Err(Response::refusal(StatusCode::BAD_REQUEST, why));
        }
        Ok(Asked {
            kind: if request.path.ends_with("allocs") {
                Kind::Allocs
            } else {
                Kind::Heap
            },
            pid: number(request, "pid")?,
            program: text(request, "program").next().map(str::to_owned),
            seconds,
            is_text,
        })
    }
}

/// The values of a query parameter.
fn text<'a>(request: &'a Request, name: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = request.query.iter();
    let named = pairs.filter(move |(given, _)| given == name);
    named.map(|(_, value)| value.as_str())
}

/// The value of a query parameter, which may be given once.
pub fn number<N: FromStr>(request: &Request, name: &str) -> Result<Option<N>, Response> {
    let mut values = text(request, name);
    match (values.next().map(str::parse), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(number)), None) => Ok(Some(number)),
        (Some(_), _) => {
            let why = format!("{name}= takes one number");
            Err(Response::refusal(StatusCode::BAD_REQUEST, why))
        }
    }
}

impl From<Failure> for Response {
    fn from(failure: Failure) -> Self {
        Response::refusal(StatusCode::NOT_FOUND, failure)
    }
}

/// The refusal of a request that may succeed later.
fn unavailable(why: impl std::fmt::Display) -> Response {
    Response::refusal(StatusCode::SERVICE_UNAVAILABLE, why).with("retry-after", RETRY)
}

/// The profile of a process.
pub fn heap(watched: &Watched, request: &Request, client: &Client) -> Response {
    let response = Asked::of(request).and_then(|asked| {
        let profile = asked_for(watched, &asked, client)?;
        Ok(if asked.is_text {
            Response::new("text/plain; charset=utf-8", legacy(&profile))
        } else {
            Response::new("application/octet-stream", encoded(&profile, asked.kind))
                .with("content-disposition", "attachment; filename=\"heap.pb.gz\"")
        })
    });
    response.unwrap_or_else(|refusal| refusal)
}

/// The profile as pprof's format, labelled with where its process runs.
pub fn encoded(profile: &Profile, kind: Kind) -> Vec<u8> {
    let pid = profile.pid.cast_signed();
    let place = Process::open(pid).map(|process| process.place());
    let labels = place.unwrap_or_default().labels(pid, &profile.program);
    let style = Style {
        labels: Some(&labels),
        shown: match kind {
            Kind::Heap => "inuse_space",
            Kind::Allocs => "alloc_space",
        },
    };
    encode_as(profile, style)
}

fn asked_for(watched: &Watched, asked: &Asked, client: &Client) -> Result<Profile, Response> {
    let pid = one(watched, asked)?;
    watched.status_page(pid)?;
    let process = Process::open(pid)?;
    if asked.seconds == 0 {
        return Ok(whole(&process)?);
    }
    let _session = watched.session().ok_or_else(too_many)?;
    let target = Target::of(&process);
    let wish = Wish {
        time: Some(Duration::from_secs(asked.seconds)),
        rate: None,
        waiter: Waiter::Client(&|| client.has_left()),
    };
    match profile::gather(&target, wish) {
        Err(_) if client.has_left() => Err(unavailable("the server ends")),
        gathered => Ok(gathered?),
    }
}

fn too_many() -> Response {
    unavailable(format!(
        "{MOST_SESSIONS} requests with seconds= are in progress, the most at a time: ask again \
         when one has ended"
    ))
}

/// The requested process, or the only one.
fn one(watched: &Watched, asked: &Asked) -> Result<i32, Response> {
    if let Some(pid) = asked.pid {
        return Ok(pid);
    }
    let mut targets = watched.targets()?;
    if let Some(program) = &asked.program {
        targets.retain(|target| target.name == *program);
    }
    match targets.as_slice() {
        [target] => Ok(target.pid),
        [] => {
            let name = asked.program.as_ref();
            let name = name.map_or(String::new(), |name| format!("{} ", shown(name)));
            let why = format!("there is no process {name}under Neap");
            Err(Response::refusal(StatusCode::NOT_FOUND, why))
        }
        several => {
            let titles: Vec<String> = several.iter().map(Target::title).collect();
            let titles = titles.join(", ");
            let why = format!("say which process: add ?pid= and one of {titles}");
            Err(Response::refusal(StatusCode::BAD_REQUEST, why))
        }
    }
}

/// The region of a process that samples now.
pub fn sampling(pid: i32) -> Result<Option<Region>, Failure> {
    let region = Region::find(pid)?;
    let head = region.as_ref().map(Region::head).transpose()?;
    Ok(region.filter(|_| head.is_some_and(|head| head.rate != 0)))
}

/// Everything that the process sampled.
fn whole(process: &Process) -> Result<Profile, Failure> {
    let pid = process.pid();
    let Some(region) = sampling(pid)? else {
        // Fails with the reason if there is no region.
        Region::open(pid)?;
        return Err(failure!(
            "sampling is switched off in process {pid}: add seconds=30 to sample for 30 seconds"
        ));
    };
    let profile = Profile::from_region_of(&region.read()?, pid.unsigned_abs())?;
    let profile = profile.called(&process.name());
    // Like Go's, without a duration: Parca treats profiles with a duration as differences.
    Ok(Profile {
        began_ms: profile.ended_ms,
        ..profile
    })
}
