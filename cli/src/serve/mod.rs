//! The HTTP responses of `neap serve`.
//!
//! | path | response |
//! |---|---|
//! | `/` | the processes, with links |
//! | `/metrics` | metrics for Prometheus |
//! | `/debug/pprof/heap`, `/debug/pprof/allocs` | heap profiles, as Go's programs serve them |
//! | `/targets` | the processes that have profiles, for service discovery over HTTP |
//!
//! `http` is the protocol. `push` sends profiles to Pyroscope.

mod http;
mod pprof;
mod push;
mod watched;

pub use http::Server;
#[cfg(fuzzing)]
pub use http::parsed;
#[cfg(fuzzing)]
pub use pprof::Asked;
pub use push::Pusher;
pub use watched::{Scope, Watched};

use crate::attach::{Process, Target};
use crate::choice::Choice;
use crate::failure::Failure;
use crate::view::{View, metrics};
use askama::Template;
use http::{Client, Request, Response};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use ureq::http::StatusCode;

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
        return Response::refusal(StatusCode::FORBIDDEN, why);
    }
    // Otherwise any page in a local browser could start a session by an image.
    if request.site == "cross-site" {
        let why = "a page of another site asked for this: enter the address in the browser instead";
        return Response::refusal(StatusCode::FORBIDDEN, why);
    }
    match request.path.as_str() {
        "/" | "/debug/pprof/" => scrape(watched, client, None, root),
        "/metrics" => match pprof::number(request, "pid") {
            Ok(pid) => scrape(watched, client, pid, |views| {
                Response::new(metrics::MEDIA_TYPE, metrics::page(views))
            }),
            Err(refusal) => refusal,
        },
        "/debug/pprof/heap" | "/debug/pprof/allocs" => pprof::heap(watched, request, client),
        "/targets" => targets(watched, address, request),
        _ => {
            let why = "neap serve has /, /metrics, /targets, /debug/pprof/heap and \
                       /debug/pprof/allocs";
            Response::refusal(StatusCode::NOT_FOUND, why)
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
            Response::refusal(StatusCode::NOT_FOUND, "this process is not served here")
        }
        Ok(Some(views)) => page(&views),
        Ok(None) => Response::refusal(StatusCode::SERVICE_UNAVAILABLE, "the client has left"),
        Err(failure) => Response::refusal(StatusCode::INTERNAL_SERVER_ERROR, failure),
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

#[derive(Template)]
#[template(path = "serve.html")]
struct Page<'a> {
    views: Vec<&'a View>,
}

/// The response: the processes, largest first.
fn root(views: &[View]) -> Response {
    let mut views: Vec<_> = views.iter().collect();
    views.sort_by_key(|view| std::cmp::Reverse(view.kernel.process_rss));
    match (Page { views }).render() {
        Ok(text) => Response::new("text/html; charset=utf-8", text),
        Err(error) => Response::refusal(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

/// The response to a request to the server on `address`.
fn targets(watched: &Watched, address: SocketAddr, request: &Request) -> Response {
    // A client in another network knows this server by another address than the server itself.
    let host = match request.host.as_str() {
        "" => address.to_string(),
        host => host.to_owned(),
    };
    match all(watched, &host) {
        Ok(targets) => Response::new("application/json", targets.to_string()),
        Err(failure) => Response::refusal(StatusCode::INTERNAL_SERVER_ERROR, failure),
    }
}

fn all(watched: &Watched, host: &str) -> Result<Value, Failure> {
    let sampling = watched.targets()?.into_iter().filter(|target| {
        let region = pprof::sampling(target.pid);
        region.is_ok_and(|region| region.is_some())
    });
    Ok(sampling.map(|target| one(&target, host)).collect())
}

fn one(target: &Target, host: &str) -> Value {
    let place = Process::open(target.pid).map(|process| process.place());
    let labels = place.unwrap_or_default().labels(target.pid, &target.name);
    let labels = labels.into_iter().chain([
        ("__param_pid", target.pid.to_string()),
        ("service_name", target.name.clone()),
    ]);
    let labels: Value = labels.collect();
    json!({"targets": [host], "labels": labels})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::view_at_rest;

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

    #[test]
    fn names_of_processes_are_no_html() {
        let view = View {
            program: "<script>alert(1)</script>".into(),
            ..view_at_rest()
        };
        let page = Page { views: vec![&view] }.render().unwrap();
        assert!(
            !page.contains("<script>") && page.contains("alert(1)"),
            "{page}"
        );
        assert!(page.contains("/debug/pprof/heap?pid=7"), "{page}");
    }

    #[test]
    fn a_page_of_nobody_says_what_to_do() {
        let page = Page { views: vec![] }.render().unwrap();
        assert!(page.contains("neap run"), "{page}");
    }
}
