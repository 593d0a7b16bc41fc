//! The records of a pax header: `length key=value` and a newline each, where the length counts the whole record.

use super::Problem;
use stasis_model::tree::{FileTime, acl};

/// No header of ours, and none we read, is longer than this.
pub(super) const LONGEST: usize = 8 << 20;
/// Before the name of an attribute.
pub(super) const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

/// The access list of an entry, in words.
pub(super) const ACCESS_LIST: &[u8] = b"SCHILY.acl.access";
/// The list that what is made in a directory gets, in words.
pub(super) const DEFAULT_LIST: &[u8] = b"SCHILY.acl.default";

/// Appends one record.
pub(super) fn put(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + digits(length) {
        length = rest + digits(length);
    }
    records.extend_from_slice(format!("{length} ").as_bytes());
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// A key and its value.
pub(super) type Record<'a> = (&'a [u8], &'a [u8]);

/// Reads all records in order.
pub(super) fn records(mut bytes: &[u8]) -> Result<Vec<Record<'_>>, Problem> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (record, rest) = split_record(bytes).ok_or(Problem::PaxRecord)?;
        records.push(record);
        bytes = rest;
    }
    Ok(records)
}

fn split_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let space = bytes.iter().take(10).position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(&bytes[..space])?).ok()?;
    if length <= space + 1 {
        return None;
    }
    let (record, rest) = bytes.split_at_checked(length)?;
    let record = record[space + 1..].strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    let (key, value) = (&record[..equals], &record[equals + 1..]);
    (!key.is_empty()).then_some(((key, value), rest))
}

/// A number without sign or leading zero.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    let is_plain = digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits.first() != Some(&b'0'));
    std::str::from_utf8(digits)
        .ok()
        .filter(|_| is_plain)?
        .parse()
        .ok()
}

/// A moment as a decimal number of seconds.
pub(super) fn spell_time(time: FileTime) -> String {
    let FileTime { seconds, nanos } = time;
    if nanos == 0 {
        return seconds.to_string();
    }
    // Before 1970 the fraction counts away from zero.
    let (sign, whole, nanos) = if seconds < 0 {
        ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanos)
    } else {
        ("", seconds.unsigned_abs(), nanos)
    };
    format!("{sign}{whole}.{nanos:09}")
        .trim_end_matches('0')
        .to_owned()
}

/// Reads a moment; what is finer than a nanosecond is cut off.
pub(super) fn read_time(text: &[u8]) -> Option<FileTime> {
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, text) = text
        .strip_prefix('-')
        .map_or((false, text), |text| (true, text));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(match (is_negative, nanos) {
        (false, _) => FileTime {
            seconds: whole,
            nanos,
        },
        (true, 0) => FileTime {
            seconds: -whole,
            nanos,
        },
        (true, _) => FileTime {
            seconds: -whole - 1,
            nanos: 1_000_000_000 - nanos,
        },
    })
}

/// The key under which an access list is spelled in words.
pub(super) fn list_key(name: &[u8]) -> Option<&'static [u8]> {
    match name {
        acl::ACCESS => Some(ACCESS_LIST),
        acl::DEFAULT => Some(DEFAULT_LIST),
        _ => None,
    }
}

/// The name of an attribute as part of a key: an equals sign would end the key.
pub(super) fn spell_attribute(name: &[u8]) -> Vec<u8> {
    let mut spelled = ATTRIBUTE.to_vec();
    for byte in name {
        match byte {
            b'%' => spelled.extend_from_slice(b"%25"),
            b'=' => spelled.extend_from_slice(b"%3D"),
            byte => spelled.push(*byte),
        }
    }
    spelled
}

/// Undoes [`spell_attribute`].
pub(super) fn read_attribute(mut spelled: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(spelled.len());
    while let Some((first, rest)) = spelled.split_first() {
        let (byte, rest) = match spelled.get(..3) {
            Some(b"%25") => (b'%', &spelled[3..]),
            Some(b"%3D") => (b'=', &spelled[3..]),
            _ => (*first, rest),
        };
        name.push(byte);
        spelled = rest;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_at_every_length() {
        for length in (0..1100).chain(9_980..10_010).chain(99_980..100_010) {
            let value = vec![b'\n'; length];
            let mut bytes = Vec::new();
            put(&mut bytes, b"path", &value);
            put(&mut bytes, b"x", b"=\0");

            let read = records(&bytes).unwrap();

            assert_eq!(read, [(&b"path"[..], &*value), (b"x", b"=\0")]);
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let bad: [&[u8]; 13] = [
            b"11 path=ab",
            b"12 path=abc",
            b"11 pathabcd\n",
            b" 11 path=a\n",
            b"011 path=a\n",
            b"0 \n",
            b"2 \n",
            b"3 \n",
            b"5 =a\n",
            b"99999999999999999999 path=a\n",
            b"-1 path=a\n",
            b"10 path=a\nx",
            b"\n",
        ];
        for bytes in bad {
            let stated = String::from_utf8_lossy(bytes);
            assert_eq!(records(bytes), Err(Problem::PaxRecord), "{stated}");
        }
        for good in [b"9 path=a\n".as_slice(), b"10 path=a\n"] {
            assert_eq!(records(good).unwrap(), [(&b"path"[..], &b"a"[..])]);
        }
    }

    #[test]
    fn moments_are_exact_on_both_sides_of_1970() {
        for (seconds, nanos, spelled) in [
            (0, 0, "0"),
            (0, 1, "0.000000001"),
            (1_700_000_000, 987_654_321, "1700000000.987654321"),
            (5, 500_000_000, "5.5"),
            (-1, 0, "-1"),
            (-1, 750_000_000, "-0.25"),
            (-2, 999_999_999, "-1.000000001"),
            (-31_536_001, 876_543_211, "-31536000.123456789"),
        ] {
            let time = FileTime { seconds, nanos };
            assert_eq!(spell_time(time), spelled);
            assert_eq!(read_time(spelled.as_bytes()), Some(time));
        }
        assert_eq!(read_time(b"1.1234567899"), read_time(b"1.123456789"));
        for bad in [
            "",
            "-",
            ".5",
            "1.x",
            "+1",
            "1e3",
            "99999999999999999999",
            " 1",
        ] {
            assert_eq!(read_time(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn an_attribute_may_have_any_name() {
        for name in [
            b"user.a".as_slice(),
            b"user.=%3D%25%",
            b"user.%",
            b"user.\n",
        ] {
            let spelled = spell_attribute(name);
            assert!(!spelled.contains(&b'='));
            assert_eq!(read_attribute(&spelled[ATTRIBUTE.len()..]), name);
        }
    }
}
