//! `neap serve`: metrics and profiles of running processes over HTTP.

use super::arguments;
use crate::attach::{StatusPage, Target, Under};
use crate::failure::{Failure, Outcome};
use crate::patience::Patience;
use crate::serve::{Pusher, Scope, Server, Watched, answer};
use clap::ArgMatches;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long requests may continue after a signal to end.
const GRACE: Duration = Duration::from_millis(500);
/// The longest wait for a signal; the next one follows it.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Serves until a signal ends it.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let watched = Arc::new(Watched::new(scope(matches)?));
    let address = *matches
        .get_one::<SocketAddr>("listen")
        .expect("the argument has a default");
    let pusher = matches
        .get_one::<String>("push")
        .map(|url| Pusher::new(Arc::clone(&watched), url));
    let interval = arguments::time(matches, "interval");
    serve(watched, address, pusher.map(|pusher| (pusher, interval)))
}

fn scope(matches: &ArgMatches) -> Result<Scope, Failure> {
    let Some(words) = matches.get_many::<OsString>("PROCESS") else {
        return Ok(Scope::All);
    };
    let open = |word: &OsString| -> Result<Under, Failure> {
        let target = Target::find(word)?;
        let status_page = StatusPage::open(target.pid)?;
        Ok(Under {
            target,
            status_page,
        })
    };
    Ok(Scope::Named(words.map(open).collect::<Result<_, _>>()?))
}

fn serve(
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
