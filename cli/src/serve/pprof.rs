//! Heap profiles at the paths of Go's `net/http/pprof`. Both paths serve the same profile, with
//! live and allocated figures: everything sampled or, like Go with `?seconds=N`, the samples of
//! that time.

use super::Watched;
use super::http::{Client, Request, Response, Status};
use super::seats::Seat;
use super::watched::MOST_SESSIONS;
use crate::attach::{Board, Process, Region, Sampling, Target};
use crate::failure::Failure;
use crate::profile::{Profile, Session, pprof, rate_in_force};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

/// Mean bytes between two samples when the server switches sampling on; Go's default.
const RATE: u64 = 512 << 10;
/// How long to wait for a process to switch sampling on.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest time to sample for a request, in seconds.
const LONGEST: u64 = 600;
/// How often to check whether the process has ended.
const LOOK: Duration = Duration::from_millis(100);
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
    let profile = Asked::of(request).and_then(|asked| profile(watched, &asked, client));
    match profile {
        Ok(bytes) => Response::new("application/octet-stream", bytes)
            .with("content-disposition", "attachment; filename=\"heap.pb.gz\""),
        Err(Refusal(Status::UNAVAILABLE, why)) => {
            Response::refusal(Status::UNAVAILABLE, &why).with("retry-after", RETRY)
        }
        Err(Refusal(status, why)) => Response::refusal(status, &why),
    }
}

fn profile(watched: &Watched, asked: &Asked, client: &Client) -> Result<Vec<u8>, Refusal> {
    let pid = one(watched, asked.pid)?;
    let board = watched.board(pid)?;
    if asked.seconds == 0 {
        return Ok(whole(&Process::open(pid)?)?);
    }
    let seat = watched.session().ok_or_else(too_many)?;
    let held = Held::begin(board, pid, seat)?;
    match held.wait(Duration::from_secs(asked.seconds), client) {
        Waited::Through => Ok(held.end(pid)?),
        Waited::ForNothing => {
            let why = "the server ends".to_owned();
            Err(Refusal(Status::UNAVAILABLE, why))
        }
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
        return Err(Failure::own(format!(
            "sampling is switched off in process {pid}: add seconds=30 to sample for 30 seconds"
        )));
    }
    let profile = Profile::from_region_of(&region.read()?, pid.unsigned_abs())?;
    Ok(pprof::encode(&profile.called(&process.name())))
}

/// A session in progress.
struct Held {
    session: Session,
    /// The region from the beginning of the session; the process may end before the session does.
    region: Region,
    process: Process,
    name: String,
    on: On,
    seat: Seat,
}

impl Held {
    fn begin(board: Board, pid: i32, seat: Seat) -> Result<Held, Failure> {
        let process = Process::open(pid)?;
        let found = Region::find(pid)?;
        let others = rate_in_force(found.as_ref())?;
        let rate = if others == 0 { RATE } else { others };
        let mut session = Session::of(found.as_ref(), rate)?;
        let (region, on) = match found {
            // Leave sampling as another observer switched it on.
            Some(region) if others != 0 => (region, On(None)),
            _ => {
                let on = On::switch(board)?;
                let region = Region::open(pid)?;
                session.switched_on(&region)?;
                (region, on)
            }
        };
        Ok(Held {
            session,
            region,
            name: process.name(),
            process,
            on,
            seat,
        })
    }

    /// Waits until the time is over or the process has ended. What it sampled until then is kept.
    /// Without a client to receive it, the wait ends early.
    fn wait(&self, time: Duration, client: &Client) -> Waited {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.process.has_ended() {
            if client.has_left() {
                return Waited::ForNothing;
            }
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        Waited::Through
    }

    /// What was sampled since the session began.
    fn end(self, pid: i32) -> Result<Vec<u8>, Failure> {
        let ended = self.session.end(&self.region)?;
        drop(self.on);
        let profile = ended.profile(pid.unsigned_abs())?.called(&self.name);
        let bytes = pprof::encode(&profile);
        drop(self.seat);
        Ok(bytes)
    }
}

/// How a session's wait ended.
enum Waited {
    /// As requested, or with the process.
    Through,
    /// The client disconnected, or the server ends.
    ForNothing,
}

/// Sampling switched on by the server. Dropping it switches sampling off, even if the client has
/// disconnected.
struct On(Option<Board>);

impl On {
    fn switch(board: Board) -> Result<On, Failure> {
        match board.sample(RATE, PATIENCE)? {
            Sampling::InForce(_) => Ok(On(Some(board))),
            Sampling::Pending => {
                let (title, why) = (board.title(), board.silence().why);
                // Cancel the request, so that the process does not carry it out later.
                drop(On(Some(board)));
                Err(Failure::own(format!(
                    "pending: {title} does not sample yet: {why}"
                )))
            }
        }
    }
}

impl Drop for On {
    fn drop(&mut self) {
        if let Some(board) = &self.0 {
            // A process that has ended does not sample.
            let _ = board.sample(0, Duration::ZERO);
        }
    }
}
