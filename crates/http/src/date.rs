//! The `Date` field (RFC 9110 §6.6.1): written once a second, however many responses bear it.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

/// The last date that was written, and its second since the epoch.
#[derive(Debug, Default)]
pub(crate) struct Date(RefCell<Option<(u64, HeaderValue)>>);

impl Date {
    /// The field's value at that time.
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
}
