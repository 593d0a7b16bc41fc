//! Bytes as text where JSON needs it: the standard alphabet, padded, and one spelling for each.

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;

/// Spells bytes.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads what [`encode`] spelled; anything else is `None`.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_spellings_are_kept() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
        }
    }

    proptest! {
        #[test]
        fn what_was_spelled_is_read_and_nothing_else(bytes: Vec<u8>, text in "[A-Za-z0-9+/=]{0,12}") {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
            if let Some(read) = decode(&text) {
                prop_assert_eq!(encode(&read), text);
            }
        }
    }
}
