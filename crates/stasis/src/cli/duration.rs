//! Durations as people write them: `300s`, `5m`, `1h30m`.

use std::fmt::Write as _;
use std::time::Duration;

/// Parses a duration; a number without a unit is refused, because nobody knows what it means.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || {
        format!(
            "`{}` is not a duration; write it like 300s, 5m, 1h30m or 250ms",
            text.escape_debug()
        )
    };
    let (mut rest, mut total) = (text, Duration::ZERO);
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.len()
            - after
                .trim_start_matches(|c: char| c.is_ascii_lowercase())
                .len();
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let scale = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(bad()),
        };
        let part = Duration::from_millis(number.checked_mul(scale).ok_or_else(bad)?);
        total = total.checked_add(part).ok_or_else(bad)?;
        rest = after;
    }
    Ok(total)
}

/// Parses a duration that is not nothing.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("a duration of nothing is of no use here".to_owned()),
        duration => Ok(duration),
    }
}

/// A duration as `parse` reads it: `1h30m`.
pub(crate) fn text(duration: Duration) -> String {
    const UNITS: [(&str, u128); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut rest = duration.as_millis();
    let mut text = String::new();
    for (unit, millis) in UNITS {
        if rest >= millis {
            // Nothing is lost on its way into a text.
            let _ = write!(text, "{}{unit}", rest / millis);
            rest %= millis;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_with_their_unit() {
        assert_eq!(parse("300s"), Ok(Duration::from_mins(5)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        for text in [
            "",
            "300",
            "s",
            "-5s",
            "5 s",
            "5x",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(positive("0s").is_err());
        for text in ["1h30m", "250ms", "0s", "1d2s"] {
            assert_eq!(super::text(parse(text).unwrap()), text);
        }
    }
}
