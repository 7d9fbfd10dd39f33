//! Takes the profile of a running process: switches sampling on, waits, reads the region, and
//! restores the earlier state.

use super::model::Profile;
use super::session::{Ended, Session};
use crate::attach::{Board, Region, Sampling, Target, kernel};
use crate::failure::{Failure, say};
use crate::patience::Patience;
use crate::progress::{Line, bar};
use crate::view::hint;
use neap_shared::stats::Bytes;
use std::time::{Duration, Instant};

/// The options of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// How long to sample. `None`: [`USUAL`] if sampling is off; if it is on, read the profile at
    /// once.
    pub time: Option<Duration>,
    /// Mean bytes between two samples. `None`: the current rate, or [`USUAL_RATE`].
    pub rate: Option<u64>,
    /// Whether to show progress on standard error.
    pub talk: Talk,
}

/// Whether progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// Shown.
    Progress,
    /// Not shown.
    Quiet,
}

/// The default time to sample.
pub const USUAL: Duration = Duration::from_secs(10);
/// The default mean of bytes between two samples, the same as Go's.
pub const USUAL_RATE: u64 = 512 << 10;

/// How long to wait for an answer. A process that is awake answers much sooner.
const ANSWER: Duration = Duration::from_secs(2);
/// How often to check whether the process has ended.
const LOOK: Duration = Duration::from_millis(100);

/// The profile of a process: of the given time or, without one, of everything that it sampled.
///
/// # Errors
/// The process does not run under Neap, cannot be inspected by this user, cannot sample, or has not
/// called its allocator.
pub fn gather(target: &Target, wish: Wish) -> Result<Profile, Failure> {
    let board = Board::open(target.pid)?;
    if wish.talk == Talk::Progress {
        kept_out(&board);
    }
    let region = Region::find(target.pid)?;
    let rate = rate_in_force(region.as_ref())?;
    let profile = match (region, wish.time) {
        (Some(region), _) if rate != 0 => running(target, &board, &region, rate, wish)?,
        (_, Some(Duration::ZERO)) => whole(&Region::open(target.pid)?, target)?,
        (region, _) => finished(target, sampled(target, &board, region, wish)?)?,
    };
    Ok(profile.called(&target.name))
}

/// Says what the process keeps out of a profile, if that is known.
fn kept_out(board: &Board) {
    let kernel = kernel::of_board(board).ok();
    if let Some(hint) = kernel.and_then(|kernel| hint::of_board(board, kernel)) {
        say(&format!("hint: {hint}"));
    }
}

/// A process's sampling rate in bytes; 0: sampling is off. Reads it from the region, because the
/// board reports only what was requested through it.
///
/// # Errors
/// The region cannot be read.
pub fn rate_in_force(region: Option<&Region>) -> Result<u64, Failure> {
    let head = region.map(Region::head).transpose()?;
    Ok(head.map_or(0, |head| head.rate))
}

/// Everything that the process ever sampled.
fn whole(region: &Region, target: &Target) -> Result<Profile, Failure> {
    Profile::from_region_of(&region.read()?, target.pid.unsigned_abs())
}

fn finished(target: &Target, ended: Ended) -> Result<Profile, Failure> {
    ended.profile(target.pid.unsigned_abs())
}

/// A session of a process whose sampling was on before and stays on.
fn running(
    target: &Target,
    board: &Board,
    region: &Region,
    rate: u64,
    wish: Wish,
) -> Result<Profile, Failure> {
    if wish.rate.is_some_and(|wanted| wanted != rate) {
        return Err(Failure::own(format!(
            "{} samples already, every {} on average: leave --rate out",
            target.title(),
            Bytes(rate)
        )));
    }
    let time = wish.time.unwrap_or_default();
    if time.is_zero() {
        return whole(region, target);
    }
    let session = Session::of(Some(region), rate)?;
    wait(target, board, rate, time, wish.talk);
    finished(target, session.end(region)?)
}

/// Switches sampling on, waits and reads. Switches it off again even if that failed.
fn sampled(
    target: &Target,
    board: &Board,
    region: Option<Region>,
    wish: Wish,
) -> Result<Ended, Failure> {
    let rate = wish.rate.unwrap_or(USUAL_RATE);
    let time = wish.time.unwrap_or(USUAL);
    let mut session = Session::of(region.as_ref(), rate)?;
    let started = board.sample(rate, ANSWER.min(time));
    let read = started.and_then(|answer| {
        let early = match answer {
            Sampling::InForce(_) => Some(Region::open(target.pid)?),
            Sampling::Pending => None,
        };
        early
            .iter()
            .try_for_each(|region| session.switched_on(region))?;
        wait(target, board, rate, time, wish.talk);
        match early {
            Some(region) => session.end(&region),
            None => late(target, session),
        }
    });
    if !board.has_ended() {
        leave(target, board, read.is_ok());
    }
    read
}

/// Ends the session of a process that did not answer at its beginning.
fn late(target: &Target, session: Session) -> Result<Ended, Failure> {
    match Region::find(target.pid)? {
        Some(region) if session.has_begun(&region.head()?) => session.end(&region),
        _ => Err(silent(target)),
    }
}

/// Switches sampling off. A sleeping process will do so when it wakes.
fn leave(target: &Target, board: &Board, good: bool) {
    let pending = match board.sample(0, ANSWER) {
        Ok(Sampling::InForce(_)) => None,
        Ok(Sampling::Pending) => Some(board.silence().why.to_owned()),
        Err(failure) => Some(failure.to_string()),
    };
    if let (Some(why), true) = (pending, good && !board.has_ended()) {
        say(&format!(
            "{} has not stopped sampling yet: {why}",
            target.title()
        ));
    }
}

fn silent(target: &Target) -> Failure {
    Failure::own(format!(
        "pending: {} has not called its allocator in this time, and only allocations after sampling was switched on \
         are seen; wait longer (--seconds), or sample from the start with neap run --sample -- PROGRAM",
        target.title()
    ))
}

/// Waits until the time is over, the process has ended, or the user presses Ctrl-C. What was
/// sampled so far is kept.
fn wait(target: &Target, board: &Board, rate: u64, time: Duration, talk: Talk) {
    if time.is_zero() {
        return;
    }
    let what = format!(
        "sampling {} every {} on average",
        target.title(),
        Bytes(rate)
    );
    let line = match talk {
        Talk::Quiet => None,
        Talk::Progress => Line::of_terminal(),
    };
    if talk == Talk::Progress && line.is_none() {
        say(&format!("{what}, for {:.1} s", time.as_secs_f64()));
    }
    let patience = Patience::new();
    let start = Instant::now();
    while start.elapsed() < time && !board.has_ended() {
        if let Some(line) = &line {
            let left = time.saturating_sub(start.elapsed()).as_secs() + 1;
            let bar = bar(start.elapsed(), time);
            line.show(&format!("{what} {bar} {left} s left, Ctrl-C to end early"));
        }
        if patience.ends_within(LOOK.min(time.saturating_sub(start.elapsed()))) {
            break;
        }
    }
}
