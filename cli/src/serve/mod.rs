//! The HTTP responses of `neap serve`.
//!
//! | path | response |
//! |---|---|
//! | `/` | the processes, with links |
//! | `/metrics` | metrics for Prometheus |
//! | `/debug/pprof/heap`, `/debug/pprof/allocs` | heap profiles, as Go's programs serve them |
//! | `/targets` | the processes that have profiles, for service discovery over HTTP |
//!
//! `http` is the protocol, `seats` bounds what happens at a time. `push` sends profiles to
//! Pyroscope.

mod http;
mod page;
mod pprof;
mod push;
mod seats;
mod targets;
mod watched;

pub use http::Server;
#[cfg(fuzzing)]
pub use http::parsed;
#[cfg(fuzzing)]
pub use pprof::Asked;
pub use push::Pusher;
pub use watched::{Scope, Watched};

use crate::view::{View, exposition, metrics};
use http::{Client, Request, Response, Status};
use std::net::{IpAddr, SocketAddr};

/// The answer to a request to the server on `address`.
pub fn answer(
    watched: &Watched,
    address: SocketAddr,
    request: &Request,
    client: &Client,
) -> Response {
    // Otherwise a page in a local browser could read these responses under a name that resolves to
    // the loopback address.
    let host = request.host.as_str();
    if address.ip().is_loopback() && !host.is_empty() && !is_local(host) {
        let why = "neap serve listens on a loopback address: call it by that, or by localhost";
        return Response::refusal(Status::FORBIDDEN, &why);
    }
    // Otherwise any page in a local browser could start a session by an image.
    if request.site == "cross-site" {
        let why = "a page of another site asked for this: enter the address in the browser instead";
        return Response::refusal(Status::FORBIDDEN, &why);
    }
    match request.path.as_str() {
        "/" | "/debug/pprof/" => scrape(watched, client, None, page::root),
        "/metrics" => match pprof::number(request, "pid") {
            Ok(pid) => scrape(watched, client, pid, |views| {
                Response::new(exposition::MEDIA_TYPE, metrics::page(views))
            }),
            Err(refusal) => refusal.into(),
        },
        "/debug/pprof/heap" | "/debug/pprof/allocs" => pprof::heap(watched, request, client),
        "/targets" => targets::page(watched, address, request),
        _ => {
            let why = "neap serve has /, /metrics, /targets, /debug/pprof/heap and \
                       /debug/pprof/allocs";
            Response::refusal(Status::NOT_FOUND, &why)
        }
    }
}

/// A page with the figures of one process, or of all.
fn scrape(
    watched: &Watched,
    client: &Client,
    pid: Option<i32>,
    page: fn(&[View]) -> Response,
) -> Response {
    match watched.views(pid, || client.has_left()) {
        Ok(Some(views)) if views.is_empty() && pid.is_some() => {
            Response::refusal(Status::NOT_FOUND, &"this process is not served here")
        }
        Ok(Some(views)) => page(&views),
        Ok(None) => Response::refusal(Status::UNAVAILABLE, &"the client has left"),
        Err(failure) => Response::refusal(Status::INTERNAL, &failure),
    }
}

/// Whether a client called this server by a name of its own machine.
pub fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn names_of_this_machine_are_told_from_others() {
        for host in [
            "localhost:9464",
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]:9464",
            "[::1]",
            "LOCALHOST",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9464",
            "10.0.0.1:9464",
            "localhost.evil.example",
            ":",
            "[::2]:1",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
