//! Dates: the `Date` field (RFC 9110 §6.6.1), written once a second, and [`Utc`] for listings and
//! logs.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

/// The last date that was written, and its second since the epoch.
#[derive(Debug, Default)]
pub(crate) struct Date(RefCell<Option<(u64, HeaderValue)>>);

impl Date {
    /// The field's value at `now`.
    pub(crate) fn at(&self, now: SystemTime) -> HeaderValue {
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut last = self.0.borrow_mut();
        match &*last {
            Some((written, value)) if *written == second => value.clone(),
            _ => last.insert((second, write(second))).1.clone(),
        }
    }
}

fn write(second: u64) -> HeaderValue {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
    HeaderValue::try_from(text).expect("letters, digits, commas, colons and spaces")
}

/// A moment as people write it, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    /// Seconds since 1970-01-01, less where it was before.
    seconds: i64,
}

impl Utc {
    /// The second of that moment; a moment before 1970 counts as the next second.
    pub fn of(time: SystemTime) -> Utc {
        let seconds = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
        };
        Utc { seconds }
    }

    /// As `2001-09-09`.
    pub fn date(self) -> String {
        let (year, month, day) = civil(self.seconds.div_euclid(86_400));
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// As logs in Common Log Format have it: `09/Sep/2001:01:46:40 +0000`.
    pub fn in_log(self) -> String {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (year, month, day) = civil(self.seconds.div_euclid(86_400));
        let month = MONTHS[(month - 1) as usize];
        format!("{day:02}/{month}/{year:04}:{} +0000", self.clock())
    }

    /// As `01:46:40`.
    pub fn clock(self) -> String {
        let second = self.seconds.rem_euclid(86_400);
        format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
    }
}

/// As RFC 3339 has it: `2001-09-09T01:46:40Z`.
impl std::fmt::Display for Utc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}T{}Z", self.date(), self.clock())
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Counted in years that start in March, so that the leap day is a year's last: such a year's
/// months of 31 and 30 days follow (153·m + 2) / 5.
fn civil(day: i64) -> (i64, i64, i64) {
    let from_era = day + 719_468;
    let (era, of_era) = (from_era.div_euclid(146_097), from_era.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_of_its_second_and_clocks_may_go_back() {
        let date = Date::default();
        let at = |ms| date.at(UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(at(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_777_999), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_778_000), "Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(at(784_111_777_999), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.at(UNIX_EPOCH - Duration::from_secs(1)), at(0));
    }

    #[test]
    fn dates_follow_the_calendar() {
        for (day, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(day), date, "{day}");
        }
        let utc = |seconds| Utc::of(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
        assert_eq!(utc(1_000_000_000), "2001-09-09T01:46:40Z");
        let in_log = Utc::of(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).in_log();
        assert_eq!(in_log, "09/Sep/2001:01:46:40 +0000");
        let before = Utc::of(UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(before.to_string(), "1969-12-31T23:59:59Z");
    }
}
