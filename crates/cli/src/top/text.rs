//! Numbers in few columns.

/// A number in at most five columns: `0`, `0.3`, `12`, `4.5K`, `99.9M`, `1.2T`.
pub(super) fn short(number: f64) -> String {
    let mut number = number.max(0.0);
    if number == 0.0 {
        return "0".to_owned();
    }
    if number < 9.95 && number.fract() != 0.0 {
        return format!("{number:.1}");
    }
    for unit in ["", "K", "M", "G", "T", "P"] {
        if number < 999.5 || unit == "P" {
            let is_whole = unit.is_empty() || number >= 99.95;
            return if is_whole {
                format!("{number:.0}{unit}")
            } else {
                format!("{number:.1}{unit}")
            };
        }
        number /= 1000.0;
    }
    unreachable!("the last unit takes any number")
}

/// A time of so many microseconds in at most six columns: `15us`, `1.5ms`, `12.3s`, `5m`.
pub(super) fn time(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        1..1000 => format!("{us}us"),
        1000..9_950 => format!("{:.1}ms", us as f64 / 1e3),
        9_950..1_000_000 => format!("{}ms", us / 1000),
        1_000_000..100_000_000 => format!("{:.1}s", us as f64 / 1e6),
        100_000_000..6_000_000_000 => format!("{}m", us / 60_000_000),
        _ => format!("{}h", us / 3_600_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_few_columns() {
        for (number, text) in [
            (0.0, "0"),
            (0.26, "0.3"),
            (3.0, "3"),
            (9.94, "9.9"),
            (12.4, "12"),
            (999.4, "999"),
            (999.6, "1.0K"),
            (4512.0, "4.5K"),
            (123_456.0, "123K"),
            (99_940_000.0, "99.9M"),
            (1.25e12, "1.2T"),
            (1e18, "1000P"),
        ] {
            assert_eq!(short(number), text, "{number}");
            assert!(short(number).len() <= 5);
        }
        for (us, text) in [
            (0, "-"),
            (15, "15us"),
            (1500, "1.5ms"),
            (250_000, "250ms"),
            (12_340_000, "12.3s"),
            (300_000_000, "5m"),
            (7_300_000_000, "2h"),
        ] {
            assert_eq!(time(us), text);
        }
    }
}
