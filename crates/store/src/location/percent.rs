//! Percent-encoding, as far as the URLs of stores need it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use stasis_model::invalid::Invalid;

/// What is spelled out: everything but what passes through a URL unchanged; slashes and colons stay readable.
const SPELLED_OUT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b':')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-')
    .remove(b'~');

/// The bytes that `text` stands for.
pub(super) fn decoded_bytes(what: &'static str, text: &str) -> Result<Vec<u8>, Invalid> {
    // The crate leaves what is no escape as it is; a store under a name that nobody meant would be the result.
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return Err(bad_percent(what));
    }
    Ok(percent_decode_str(text).collect())
}

/// The text that `text` stands for.
pub(super) fn decoded(what: &'static str, text: &str) -> Result<String, Invalid> {
    String::from_utf8(decoded_bytes(what, text)?).map_err(|_| bad_percent(what))
}

/// Spells bytes so that they pass through a URL unchanged.
pub(super) fn encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, SPELLED_OUT).to_string()
}

/// A percent sign without two hexadecimal digits, or bytes that are no text.
fn bad_percent(what: &str) -> Invalid {
    Invalid::new(format!(
        "the {what} has a percent sign that is not followed by two hexadecimal digits of a valid character"
    ))
}
