//! `neap serve`: metrics and profiles of running processes over HTTP.

use crate::attach::{Board, Target, Under};
use crate::failure::Outcome;
use crate::failure::{Failure, say};
use crate::serve::{Scope, Watched, router};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// How long requests may continue after a signal to end.
const GRACE: Duration = Duration::from_millis(500);

/// Declares the command line.
pub fn command() -> Command {
    Command::new("serve")
        .about("Serve metrics (Prometheus) and heap profiles (pprof) of running processes over HTTP")
        .after_help(
            "Serves the processes of the user who runs it; root serves those of all users. Every user of this machine can \
             read what is served on a loopback address.\n\n/metrics is for Prometheus, /debug/pprof/heap and \
             /debug/pprof/allocs for pprof (?pid= chooses the process, ?seconds= samples for that time), / lists the \
             processes.",
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_name("PID|NAME")
                .action(ArgAction::Append)
                .value_parser(value_parser!(OsString))
                .conflicts_with("all")
                .help("Serve this process only; may be given again"),
        )
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("Serve all processes under Neap, also those that start later (the default)"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS:PORT")
                .default_value("127.0.0.1:9464")
                .value_parser(value_parser!(SocketAddr))
                .help("Where to listen; port 0 takes any"),
        )
}

/// Serves until a signal ends it.
pub fn perform(matches: &ArgMatches) -> Outcome {
    let watched = Arc::new(Watched::new(scope(matches)?));
    let address = *matches
        .get_one::<SocketAddr>("listen")
        .expect("the argument has a default");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::own(format!("cannot begin to serve: {error}")))?;
    let outcome = runtime.block_on(serve(watched, address));
    // A request that still waits for a process takes at most as long as its answer.
    runtime.shutdown_timeout(GRACE);
    outcome
}

fn scope(matches: &ArgMatches) -> Result<Scope, Failure> {
    let Some(words) = matches.get_many::<OsString>("pid") else {
        return Ok(Scope::All);
    };
    let open = |word: &OsString| -> Result<Under, Failure> {
        let target = Target::find(word)?;
        let board = Board::open(target.pid)?;
        Ok(Under { target, board })
    };
    Ok(Scope::Named(words.map(open).collect::<Result<_, _>>()?))
}

async fn serve(watched: Arc<Watched>, address: SocketAddr) -> Outcome {
    let unheard = |error: io::Error| {
        Failure::own(format!(
            "cannot listen on {address}: {error}; choose another place with --listen"
        ))
    };
    let listener = TcpListener::bind(address).await.map_err(unheard)?;
    let address = listener.local_addr().map_err(unheard)?;
    let mut end = End::new().map_err(unheard)?;
    say(&format!(
        "serving http://{address}/ (metrics at http://{address}/metrics)"
    ));
    if !address.ip().is_loopback() {
        say(&format!(
            "warning: {address} is no loopback address: everyone who reaches it can read the figures and heap profiles, and \
             switch sampling on"
        ));
    }
    let over = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&over);
    let server = axum::serve(listener, router(watched, address))
        .with_graceful_shutdown(async move { told.notified().await });
    let server = async { server.await };
    tokio::pin!(server);
    tokio::select! {
        failed = &mut server => failed.map_err(unheard)?,
        () = end.wait() => {
            over.notify_one();
            // Requests that have not ended by then are dropped with the runtime.
            let _ = tokio::time::timeout(GRACE, server).await;
        }
    }
    Ok(0)
}

/// The signals that end the server.
struct End {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl End {
    fn new() -> io::Result<End> {
        Ok(End {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
