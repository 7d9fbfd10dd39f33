//! The processes that have profiles, in the form of Prometheus' service discovery over HTTP, which
//! Grafana Alloy and Parca use as well. Each target is this server with the process as a parameter.

use super::http::{Request, Response, Status};
use super::watched::Watched;
use crate::attach::{Process, Target};
use crate::failure::Failure;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The response to a request to the server on `address`.
pub fn page(watched: &Watched, address: SocketAddr, request: &Request) -> Response {
    // A client in another network knows this server by another address than the server itself.
    let host = match request.host.as_str() {
        "" => address.to_string(),
        host => host.to_owned(),
    };
    match all(watched, &host) {
        Ok(targets) => Response::new("application/json", targets.to_string()),
        Err(failure) => Response::refusal(Status::INTERNAL, &failure),
    }
}

fn all(watched: &Watched, host: &str) -> Result<Value, Failure> {
    let sampling = watched.targets()?.into_iter().filter(|target| {
        let region = super::pprof::sampling(target.pid);
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
    let labels: serde_json::Map<_, _> = labels
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect();
    json!({"targets": [host], "labels": labels})
}
