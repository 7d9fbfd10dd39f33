//! Takes the profile of a running process: switches sampling on, waits, reads the region, and
//! restores the earlier state.

use super::model::Profile;
use super::region::{Ended, Session};
use crate::attach::{Region, StatusPage, Target, kernel};
use crate::failure::Failure;
use crate::output::Talk;
use crate::supervise::Patience;
use crate::view::guarded::hint;
use neap_shared::stats::Bytes;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

/// The options of a profile.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    /// How long to sample. `None`: [`USUAL`] if sampling is off; if it is on, read the profile at
    /// once.
    pub time: Option<Duration>,
    /// Mean bytes between two samples. `None`: the current rate, or [`USUAL_RATE`].
    pub rate: Option<u64>,
    /// Who waits for it.
    pub waiter: Waiter<'a>,
}

/// Who waits for a profile.
#[derive(Clone, Copy)]
pub enum Waiter<'a> {
    /// A person, who may see progress on standard error and end the wait with Ctrl-C.
    Person(Talk),
    /// A client of a server, which takes no profile of a process that does not answer. This tells
    /// whether it has left.
    Client(&'a dyn Fn() -> bool),
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
    let status_page = StatusPage::open(target.pid)?;
    if matches!(wish.waiter, Waiter::Person(Talk::Normal)) {
        kept_out(&status_page);
    }
    let region = Region::find(target.pid)?;
    let rate = rate_in_force(region.as_ref())?;
    let profile = match (region, wish.time) {
        (Some(region), _) if rate != 0 => running(target, &status_page, &region, rate, wish)?,
        (_, Some(Duration::ZERO)) => whole(&Region::open(target.pid)?, target)?,
        (region, _) => {
            sampled(target, &status_page, region, wish)?.profile(target.pid.unsigned_abs())?
        }
    };
    Ok(profile.called(&target.name))
}

/// Says what the process keeps out of a profile, if that is known.
fn kept_out(status_page: &StatusPage) {
    let kernel = kernel::of_status_page(status_page).ok();
    if let Some(told) = kernel.and_then(|kernel| hint(status_page, kernel)) {
        say!("hint: {told}");
    }
}

/// A process's sampling rate in bytes; 0: sampling is off. Reads it from the region, because the
/// status page reports only what was requested through it.
///
/// # Errors
/// The region cannot be read.
fn rate_in_force(region: Option<&Region>) -> Result<u64, Failure> {
    let head = region.map(Region::head).transpose()?;
    Ok(head.map_or(0, |head| head.rate))
}

/// Everything that the process ever sampled.
fn whole(region: &Region, target: &Target) -> Result<Profile, Failure> {
    Profile::from_region_of(&region.read()?, target.pid.unsigned_abs())
}

/// A session of a process whose sampling was on before and stays on.
fn running(
    target: &Target,
    status_page: &StatusPage,
    region: &Region,
    rate: u64,
    wish: Wish,
) -> Result<Profile, Failure> {
    if wish.rate.is_some_and(|wanted| wanted != rate) {
        return Err(failure!(
            "{} samples already, every {} on average: leave --sample out",
            target.title(),
            Bytes(rate)
        ));
    }
    let time = wish.time.unwrap_or_default();
    if time.is_zero() {
        return whole(region, target);
    }
    let session = Session::of(Some(region), rate)?;
    wait(target, status_page, rate, time, wish.waiter)?;
    session.end(region)?.profile(target.pid.unsigned_abs())
}

/// Switches sampling on, waits and reads. Switches it off again even if that failed.
fn sampled(
    target: &Target,
    status_page: &StatusPage,
    region: Option<Region>,
    wish: Wish,
) -> Result<Ended, Failure> {
    let rate = wish.rate.unwrap_or(USUAL_RATE);
    let time = wish.time.unwrap_or(USUAL);
    let mut session = Session::of(region.as_ref(), rate)?;
    let started = status_page.sample(rate, ANSWER.min(time));
    let read = started.and_then(|answer| {
        let early = match answer {
            Some(_) => Some(Region::open(target.pid)?),
            None if matches!(wish.waiter, Waiter::Client(_)) => {
                return Err(unanswered(status_page));
            }
            None => None,
        };
        if let Some(region) = &early {
            session.switched_on(region)?;
        }
        wait(target, status_page, rate, time, wish.waiter)?;
        match early {
            Some(region) => session.end(&region),
            None => late(target, session),
        }
    });
    if !status_page.has_ended() {
        match read {
            Ok(_) => leave(target, status_page),
            Err(_) => {
                // Cancels also a request that the process would carry out later. Its own error
                // matters less.
                let _ = status_page.sample(0, Duration::ZERO);
            }
        }
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
fn leave(target: &Target, status_page: &StatusPage) {
    let pending = match status_page.sample(0, ANSWER) {
        Ok(Some(_)) => None,
        Ok(None) => Some(status_page.silence().why.to_owned()),
        Err(failure) => Some(failure.to_string()),
    };
    if let (Some(why), false) = (pending, status_page.has_ended()) {
        say!("{} has not stopped sampling yet: {why}", target.title());
    }
}

fn unanswered(status_page: &StatusPage) -> Failure {
    let (title, why) = (status_page.title(), status_page.silence().why);
    failure!("pending: {title} does not sample yet: {why}")
}

fn silent(target: &Target) -> Failure {
    failure!(
        "pending: {} did not begin to sample in this time: an idle process does not, nor one \
         whose calls all stay on the allocator's fast path; wait longer (--for 1m), or sample \
         from the start with neap run --sample 512K -- PROGRAM",
        target.title()
    )
}

/// Waits until the time is over, the process has ended, or the user presses Ctrl-C. What was
/// sampled so far is kept.
///
/// # Errors
/// The client has left.
fn wait(
    target: &Target,
    status_page: &StatusPage,
    rate: u64,
    time: Duration,
    waiter: Waiter,
) -> Result<(), Failure> {
    if time.is_zero() {
        return Ok(());
    }
    let start = Instant::now();
    let left = || time.saturating_sub(start.elapsed());
    let goes_on = || !left().is_zero() && !status_page.has_ended();
    let talk = match waiter {
        Waiter::Person(talk) => talk,
        Waiter::Client(has_left) => {
            while goes_on() {
                if has_left() {
                    return Err(failure!("the client has left"));
                }
                thread::sleep(LOOK.min(left()));
            }
            return Ok(());
        }
    };
    let name = target.title();
    let what = format!("sampling {name} every {} on average", Bytes(rate));
    // The message is cut to the terminal's width.
    let line = talk.progress("[{bar:30}] {wide_msg}", time.as_millis() as u64);
    if talk == Talk::Normal && line.is_hidden() {
        say!("{what}, for {:.1} s", time.as_secs_f64());
    }
    let patience = Patience::new();
    while goes_on() {
        let seconds = left().as_secs() + 1;
        line.set_message(format!("{seconds} s left, Ctrl-C to end early: {what}"));
        line.set_position(start.elapsed().as_millis() as u64);
        if !line.is_hidden() {
            // At the line's end, a terminal's `^C` would begin another line, and this one would
            // stay. A terminal that is gone needs nothing.
            let _ = io::stderr().write_all(b"\r");
        }
        if patience.ends_within(LOOK.min(left())) {
            break;
        }
    }
    Ok(())
}
