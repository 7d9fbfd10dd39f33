//! Heap profiles at the paths of Go's `net/http/pprof`. Both paths serve the same profile, with
//! live and allocated figures: everything sampled or, like Go with `?seconds=N`, the samples of
//! that time.

use super::watched::MOST_SESSIONS;
use super::{Watched, blocking, refusal};
use crate::attach::{Board, Process, Region, Sampling, Target};
use crate::failure::Failure;
use crate::profile::{Profile, Session, pprof, rate_in_force};
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

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
#[derive(Debug, Deserialize)]
pub struct Asked {
    pid: Option<i32>,
    seconds: Option<u64>,
}

/// Why there is no profile.
struct Refusal(StatusCode, String);

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal(StatusCode::NOT_FOUND, failure.to_string())
    }
}

/// The profile of a process.
pub async fn heap(watched: State<Arc<Watched>>, asked: Query<Asked>) -> Response {
    match profile(watched.0, &asked).await {
        Ok(bytes) => {
            let name = "attachment; filename=\"heap.pb.gz\"";
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream"),
                (header::CONTENT_DISPOSITION, name),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (headers, bytes).into_response()
        }
        Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, why)) => {
            let answer = refusal(StatusCode::SERVICE_UNAVAILABLE, &why);
            ([(header::RETRY_AFTER, RETRY)], answer).into_response()
        }
        Err(Refusal(status, why)) => refusal(status, &why),
    }
}

async fn profile(watched: Arc<Watched>, asked: &Asked) -> Result<Vec<u8>, Refusal> {
    let seconds = asked.seconds.unwrap_or(0);
    if seconds > LONGEST {
        let why = format!("{seconds} seconds are too many: ask for {LONGEST} at most");
        return Err(Refusal(StatusCode::BAD_REQUEST, why));
    }
    let pid = one(&watched, asked.pid).await?;
    let of_board = Arc::clone(&watched);
    let board = blocking(move || of_board.board(pid)).await?;
    if seconds == 0 {
        return Ok(blocking(move || whole(&Process::open(pid)?)).await?);
    }
    let leave = watched.leave().ok_or_else(too_many)?;
    let held = blocking(move || Held::begin(board, pid, leave)).await?;
    held.wait(Duration::from_secs(seconds)).await;
    Ok(blocking(move || held.end(pid)).await?)
}

fn too_many() -> Refusal {
    let why = format!(
        "{MOST_SESSIONS} requests with seconds= are in progress, the most at a time: ask again when one has ended"
    );
    Refusal(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// The requested process, or the only one.
async fn one(watched: &Arc<Watched>, pid: Option<i32>) -> Result<i32, Refusal> {
    let watched = Arc::clone(watched);
    if let Some(pid) = pid {
        return Ok(pid);
    }
    match blocking(move || watched.targets()).await?.as_slice() {
        [target] => Ok(target.pid),
        [] => Err(Refusal(
            StatusCode::NOT_FOUND,
            "there is no process under Neap".into(),
        )),
        several => Err(Refusal(
            StatusCode::BAD_REQUEST,
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

/// A session in progress. Its permit is released with its bytes, even on a thread that no request
/// awaits.
struct Held {
    session: Session,
    /// The region from the beginning of the session; the process may end before the session does.
    region: Region,
    process: Process,
    name: String,
    on: On,
    leave: OwnedSemaphorePermit,
}

impl Held {
    fn begin(board: Board, pid: i32, leave: OwnedSemaphorePermit) -> Result<Held, Failure> {
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
            leave,
        })
    }

    /// Waits until the time is over or the process has ended. What it sampled until then is kept.
    async fn wait(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.process.has_ended() {
            tokio::time::sleep(LOOK.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// What was sampled since the session began.
    fn end(self, pid: i32) -> Result<Vec<u8>, Failure> {
        let ended = self.session.end(&self.region)?;
        drop(self.on);
        let profile = ended.profile(pid.unsigned_abs())?.called(&self.name);
        let bytes = pprof::encode(&profile);
        drop(self.leave);
        Ok(bytes)
    }
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
