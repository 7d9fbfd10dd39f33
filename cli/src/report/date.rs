//! A date and time for people.

use humantime::format_rfc3339_seconds;
use std::borrow::Borrow;
use std::time::{Duration, UNIX_EPOCH};

/// `1.5 s`.
pub fn seconds(ms: impl Borrow<u64>) -> String {
    format!("{:.1} s", *ms.borrow() as f64 / 1e3)
}

/// `2026-11-21 13:15:00 UTC`, from ms since 1970.
pub fn utc(ms: impl Borrow<u64>) -> String {
    let time = UNIX_EPOCH + Duration::from_secs((ms.borrow() / 1000).min(LAST_SECOND));
    let text = format_rfc3339_seconds(time).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

/// The last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_date() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399_000), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_266_900_000), "2026-11-21 13:15:00 UTC");
        assert!(utc(u64::MAX).starts_with("9999-12-31"));
    }
}
