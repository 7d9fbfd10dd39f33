//! Filters of all templates.

use crate::failure;
use askama::{Result, Values, filter_fn};

/// Bytes for people.
#[filter_fn]
pub fn bytes(bytes: &u64, _: &dyn Values) -> Result<String> {
    Ok(neap_shared::stats::Bytes(*bytes).to_string())
}

/// A name on one line.
#[filter_fn]
pub fn shown(name: &str, _: &dyn Values) -> Result<String> {
    Ok(failure::shown(name).to_string())
}
