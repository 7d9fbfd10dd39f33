//! A web server that serves its own heap profile, for `go tool pprof` and Pyroscope.
//!
//! `POST /sessions` opens a session, which takes 64 KiB and stays. `GET /debug/pprof/heap` is the
//! profile.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use std::sync::{Arc, Mutex};

#[global_allocator]
static ALLOCATOR: neap::Neap = neap::Neap;

type Sessions = Arc<Mutex<Vec<Vec<u8>>>>;

/// The profile. A caller can learn the program's structure from it, so serve it on an address that
/// only operators can reach.
async fn heap() -> Result<Vec<u8>, (StatusCode, String)> {
    neap::profile::pprof().map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}

async fn open_session(State(sessions): State<Sessions>) -> String {
    let session = new_session();
    let mut sessions = sessions.lock().expect("a request failed");
    sessions.push(session);
    format!("{} sessions\n", sessions.len())
}

/// The profile names this function.
#[inline(never)]
fn new_session() -> Vec<u8> {
    vec![1; 64 << 10]
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    neap::purge::enable_thread();
    neap::profile::start(512 << 10)?;
    let router = Router::new()
        .route("/debug/pprof/heap", get(heap))
        .route("/sessions", post(open_session))
        .with_state(Sessions::default());
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}
