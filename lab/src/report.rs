//! A worker's report: lines `key=value`.

use anyhow::Context as _;

/// The value of the line `key=value` in a report.
pub fn field<'a>(report: &'a str, key: &str) -> Option<&'a str> {
    let of = |line: &'a str| line.strip_prefix(key)?.strip_prefix('=');
    report.lines().find_map(of).map(str::trim)
}

/// Like [`field`], but the line is required.
///
/// # Errors
/// If there is no such line.
pub fn needed<'a>(report: &'a str, key: &str) -> anyhow::Result<&'a str> {
    field(report, key).with_context(|| format!("the worker did not tell {key}"))
}
