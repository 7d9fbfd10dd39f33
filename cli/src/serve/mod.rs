//! The HTTP responses of `neap serve`.
//!
//! | path | response |
//! |---|---|
//! | `/` | the processes, with links |
//! | `/metrics` | metrics for Prometheus |
//! | `/debug/pprof/heap`, `/debug/pprof/allocs` | heap profiles, as Go's programs serve them |
//!
//! Reading boards blocks, so it runs on other threads than HTTP.

mod page;
mod pprof;
mod watched;

pub use watched::{Scope, Watched};

use crate::failure::Failure;
use crate::view::{exposition, metrics};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The routes of a server on `address`.
pub fn router(watched: Arc<Watched>, address: SocketAddr) -> Router {
    let router = Router::new()
        .route("/", get(page::root))
        .route("/metrics", get(scrape))
        .route("/debug/pprof/heap", get(pprof::heap))
        .route("/debug/pprof/allocs", get(pprof::heap))
        .with_state(watched);
    match address.ip().is_loopback() {
        true => router.layer(middleware::from_fn(only_local_names)),
        false => router,
    }
}

async fn scrape(State(watched): State<Arc<Watched>>) -> Response {
    match blocking(move || watched.views()).await {
        Ok(views) => {
            let headers = [
                (header::CONTENT_TYPE, exposition::MEDIA_TYPE),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (headers, metrics::page(&views)).into_response()
        }
        Err(failure) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &failure),
    }
}

/// Runs blocking work on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::own(format!("neap itself failed: {error}"))))
}

/// An error as one sentence.
fn refusal(status: StatusCode, why: &impl std::fmt::Display) -> Response {
    (status, format!("{why}\n")).into_response()
}

/// Rejects foreign host names. Otherwise a page in a local browser could read these responses under
/// a name that resolves to the loopback address.
async fn only_local_names(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    match host.is_empty() || is_local(host) {
        true => next.run(request).await,
        false => refusal(
            StatusCode::FORBIDDEN,
            &"neap serve listens on a loopback address: call it by that, or by localhost",
        ),
    }
}

fn is_local(host: &str) -> bool {
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
