//! `neap stat`, `neap top` and `neap serve`: show where the memory of running processes is, once,
//! at intervals, or over HTTP.

use super::{advice, chosen, format, named, time};
use crate::attach::{StatusPage, Target, Under};
use crate::failure::{Failure, Outcome, TIMED_OUT};
use crate::grammar::{StatFormat, TextOrJson, TopFormat};
use crate::output::print;
use crate::serve::{Pusher, Scope, Server, Watched, answer};
use crate::supervise::{Ending, Patience};
use crate::top::{Feed, Pace, Stop, note_signals, on_screen, plain_list, plain_one};
use crate::view::text::Detail;
use crate::view::{State, View, json, metrics, text};
use clap::ArgMatches;
use neap_shared::status_page::LEAST_INTERVAL_MS;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// `neap stat`: prints the verdict or the tables, or without a process the list of all.
pub fn stat(matches: &ArgMatches) -> Outcome {
    if !matches.contains_id("PROCESS") {
        return list(format(matches));
    }
    let target = named(matches)?;
    let status_page = StatusPage::open(target.pid)?;
    let patience = time(matches, "timeout");
    let view = View::ask(&status_page, patience)?;
    let page = match format(matches) {
        StatFormat::Json => format!("{}\n", json::object(&view)),
        StatFormat::Prometheus => metrics::page(std::slice::from_ref(&view)),
        StatFormat::Text => {
            let detail = match matches.get_flag("all") {
                true => Detail::All,
                false => Detail::Verdict,
            };
            text::page(&view, &advice(patience, status_page.silence()), detail)
        }
    };
    print(&page)?;
    Ok(match view.state {
        State::Fresh => 0,
        State::Pending => i32::from(TIMED_OUT),
    })
}

fn list(form: StatFormat) -> Outcome {
    let form = match form {
        StatFormat::Text => TextOrJson::Text,
        StatFormat::Json => TextOrJson::Json,
        StatFormat::Prometheus => {
            return Err(failure!(
                "name a process: neap serve has the metrics of all processes"
            ));
        }
    };
    let once = Pace {
        interval: Duration::ZERO,
        count: Some(1),
    };
    plain_list(once, form).map(|_| 0)
}

/// `neap top`: watches the processes.
pub fn top(matches: &ArgMatches) -> Outcome {
    let pace = pace(matches);
    let feed = match matches.get_one::<OsString>("PROCESS") {
        Some(word) => Some(feed(&Target::find(word)?, pace.interval)?),
        None => None,
    };
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let usual = if is_terminal {
        TopFormat::Screen
    } else {
        TopFormat::Text
    };
    let form = match chosen(matches).unwrap_or(usual) {
        TopFormat::Screen if !is_terminal => {
            return Err(failure!(
                "the screen needs a terminal for standard input and output: use --format text"
            ));
        }
        TopFormat::Screen => None,
        TopFormat::Text => Some(TextOrJson::Text),
        TopFormat::Json => Some(TextOrJson::Json),
    };
    note_signals();
    let stop = match (feed, form) {
        (feed, None) => on_screen(feed, pace)?,
        (Some(feed), Some(form)) => plain_one(feed, pace, form)?,
        (None, Some(form)) => plain_list(pace, form)?,
    };
    Ok(match stop {
        Stop::Asked => 0,
        Stop::Signal(signal) => Ending::Signal(signal).imitate(),
        Stop::Ended(title) => {
            say!("{title} has ended");
            0
        }
    })
}

fn feed(target: &Target, interval: Duration) -> Result<Feed, Failure> {
    Feed::new(StatusPage::open(target.pid)?, interval)
}

fn pace(matches: &ArgMatches) -> Pace {
    Pace {
        interval: time(matches, "interval").max(Duration::from_millis(LEAST_INTERVAL_MS)),
        count: matches.get_one("times").copied(),
    }
}

/// How long requests may continue after a signal to end.
const GRACE: Duration = Duration::from_millis(500);
/// The longest wait for a signal; the next one follows it.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// `neap serve`: serves until a signal ends it.
pub fn serve(matches: &ArgMatches) -> Outcome {
    let watched = Arc::new(Watched::new(scope(matches)?));
    let address = *matches
        .get_one::<SocketAddr>("listen")
        .expect("the argument has a default");
    let pusher = matches
        .get_one::<String>("push")
        .map(|url| Pusher::new(Arc::clone(&watched), url));
    let interval = time(matches, "interval");
    serve_on(watched, address, pusher.map(|pusher| (pusher, interval)))
}

fn scope(matches: &ArgMatches) -> Result<Scope, Failure> {
    let Some(words) = matches.get_many::<OsString>("PROCESS") else {
        return Ok(Scope::All);
    };
    let named = words.map(|word| Under::open(Target::find(word)?));
    Ok(Scope::Named(named.collect::<Result<_, _>>()?))
}

fn serve_on(
    watched: Arc<Watched>,
    address: SocketAddr,
    pusher: Option<(Pusher, Duration)>,
) -> Outcome {
    let unheard = |error: io::Error| {
        failure!("cannot listen on {address}: {error}; choose another place with --listen")
    };
    let listener = TcpListener::bind(address).map_err(unheard)?;
    let address = listener.local_addr().map_err(unheard)?;
    // Before there is another thread, which would take the signals.
    let signals = Patience::new();
    let server = Server::start(listener, move |request, client| {
        answer(&watched, address, request, client)
    });
    let server = server.map_err(unheard)?;
    say!("serving http://{address}/ (metrics at http://{address}/metrics)");
    if !address.ip().is_loopback() {
        say!(
            "warning: {address} is no loopback address: everyone who reaches it can read the \
             figures and heap profiles, and \
             switch sampling on"
        );
    }
    if let Some((pusher, interval)) = pusher {
        let started = thread::Builder::new().spawn(move || pusher.run(interval));
        started.map_err(|error| failure!("cannot start a thread for --push: {error}"))?;
    }
    while !signals.ends_within(DAY) {}
    // Requests that have not ended by then are dropped with the process.
    server.end(GRACE);
    Ok(0)
}
