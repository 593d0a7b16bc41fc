//! Sizes as people write and read them: `10GB`, `512MiB`, `4096`.

/// Units of bytes: of a thousand, as disks are sold, and of 1024, as memory is.
const UNITS: [(&str, u64); 9] = [
    ("", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
];

/// Parses a size that is not nothing; a number without a unit is bytes.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    let bad = || {
        format!(
            "`{}` is not a size; write it like 10GB, 512MiB or 4096",
            text.escape_debug()
        )
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let unit = unit.to_ascii_uppercase();
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    let (_, scale) = known.ok_or_else(bad)?;
    match number.checked_mul(*scale).ok_or_else(bad)? {
        0 => Err("a size of nothing is of no use here".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A number of bytes for people: `2.4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut whole, mut rest, mut unit) = (bytes, 0, 0);
    while whole >= 1024 && unit + 1 < units.len() {
        (whole, rest, unit) = (whole / 1024, whole % 1024, unit + 1);
    }
    match (unit, rest * 10 / 1024) {
        (_, 0) => format!("{whole} {}", units[unit]),
        _ => format!("{whole}.{} {}", rest * 10 / 1024, units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_of_a_thousand_unless_they_say_that_they_are_of_1024() {
        assert_eq!(positive("10GB"), Ok(10_000_000_000));
        assert_eq!(positive("10GiB"), Ok(10_737_418_240));
        assert_eq!(positive("512mib"), Ok(536_870_912));
        assert_eq!(positive("4096"), Ok(4096));
        for text in [
            "",
            "GB",
            "0GB",
            "-1GB",
            "1.5GB",
            "10 GB",
            "10G",
            "99999999999999999999",
            "18446744073709551615TB",
        ] {
            assert!(positive(text).is_err(), "{text:?}");
        }
    }
}
