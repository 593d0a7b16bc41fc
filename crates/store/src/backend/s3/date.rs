//! The `Date` of an HTTP answer.

use stasis_model::time::Timestamp;
use std::time::Duration;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT`, the only form a server may send today.
pub(super) fn parsed(text: &str) -> Option<Timestamp> {
    let (_, rest) = text.split_once(", ")?;
    let parts: Vec<&str> = rest.split(' ').collect();
    let [day, month, year, time, "GMT"] = parts[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let days = days_since_1970(number(year)?, month, number(day)?)?;
    let clock: Vec<&str> = time.split(':').collect();
    let [hour, minute, second] = clock[..] else {
        return None;
    };
    let of_day = number(hour)? * 3600 + number(minute)? * 60 + number(second)?;
    let seconds = Duration::from_secs(days * 86_400 + of_day);
    Some(Timestamp::from_millis(0).plus(seconds))
}

/// Digits only, and few enough that nothing overflows.
fn number(text: &str) -> Option<u64> {
    let plain = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that a leap day is the last of its year.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let of_year = (153 * month + 2) / 5 + day - 1;
    Some(year * 365 + leap_days + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_the_moment_it_names() {
        for text in [
            "1994-11-06T08:49:37",
            "2000-02-29T23:59:59",
            "2026-01-01T00:00:00",
            "1970-01-01T00:00:00",
            "2100-03-01T12:00:00",
        ] {
            let (year, rest) = text.split_once('-').unwrap();
            let (month, rest) = rest.split_once('-').unwrap();
            let (day, time) = rest.split_once('T').unwrap();
            let month = MONTHS[month.parse::<usize>().unwrap() - 1];
            let date = format!("Xxx, {day} {month} {year} {time} GMT");

            let moment = parsed(&date).unwrap();

            assert_eq!(moment.to_string(), format!("{text}.000Z"));
        }
    }

    #[test]
    fn what_is_not_a_date_is_none() {
        for text in [
            "",
            "now",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nix 1994 08:49:37 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 99999 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
