//! A date and time for people.

/// `1.5 s`.
pub fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1e3)
}

/// `2026-11-21 13:15:00 UTC`, from ms since 1970.
pub fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (year, month, day) = civil((seconds / 86_400).min(LAST_DAY));
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The last day of the year 9999.
const LAST_DAY: u64 = 2_932_896;

/// Year, month and day of a day since 1970, by 400-year cycles from the first of March (Howard
/// Hinnant's `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

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
