//! Percent-encoding, as far as the URLs of stores need it.

use super::BadLocation;
use std::fmt::Write;

/// The bytes that `text` stands for.
pub(super) fn decoded_bytes(what: &'static str, text: &str) -> Result<Vec<u8>, BadLocation> {
    let bad = || BadLocation::Percent { what };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = rest.next().map(char::from)?.to_digit(16)?;
            u8::try_from(digit).ok()
        };
        let (high, low) = digit().zip(digit()).ok_or_else(bad)?;
        bytes.push(high << 4 | low);
    }
    Ok(bytes)
}

/// The text that `text` stands for.
pub(super) fn decoded(what: &'static str, text: &str) -> Result<String, BadLocation> {
    String::from_utf8(decoded_bytes(what, text)?).map_err(|_| BadLocation::Percent { what })
}

/// Spells bytes so that they pass through a URL unchanged; slashes and colons stay readable.
pub(super) fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"/:._-~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "%{byte:02X}").expect("a string can be written to");
        }
    }
    text
}
