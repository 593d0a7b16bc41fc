//! Cookies and Local Storage as browser frameworks exchange them: the JSON of Playwright's `storageState`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a page keeps, which nobody should find in a log: it can be written into a file, and is not shown otherwise.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoredText(String);

impl StoredText {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for StoredText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for StoredText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// When a cookie is sent along with requests from other sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words of the standard")]
pub enum SameSite {
    Strict,
    #[default]
    Lax,
    None,
}

impl SameSite {
    /// From the column `samesite` of Chrome's table; what is not said counts as `Lax`, as browsers take it.
    pub fn of_column(number: i64) -> Self {
        match number {
            0 => Self::None,
            2 => Self::Strict,
            _ => Self::Lax,
        }
    }
}

/// A cookie.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateCookie {
    /// What it is called.
    pub name: String,
    /// What it says.
    pub value: StoredText,
    /// The host, with a dot before it if subdomains get it too.
    pub domain: String,
    /// Beneath which path.
    #[serde(default = "root")]
    pub path: String,
    /// Seconds since 1970; -1 for one that ends with the browser.
    #[serde(default = "session")]
    pub expires: f64,
    /// Whether pages cannot read it.
    #[serde(default)]
    pub http_only: bool,
    /// Whether it is sent over TLS only.
    #[serde(default)]
    pub secure: bool,
    /// When other sites' requests carry it.
    #[serde(default)]
    pub same_site: SameSite,
    /// The site under which alone it counts, if it is partitioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    /// Whether a partitioned one belongs to pages with a frame of another site above them; Playwright's name for it.
    #[serde(
        rename = "_crHasCrossSiteAncestor",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub has_cross_site_ancestor: Option<bool>,
}

fn root() -> String {
    "/".to_owned()
}

fn session() -> f64 {
    -1.0
}

impl StateCookie {
    /// Whether it ends with the browser, so that no snapshot keeps it.
    pub fn is_session(&self) -> bool {
        self.expires < 0.0
    }

    /// The site under which alone it counts, and whether a frame of another site is above its own. A file that does not say so
    /// means the cookie of an embedded page, as Playwright reads it.
    pub fn partition(&self) -> Option<(&str, bool)> {
        let site = self.partition_key.as_deref()?;
        Some((site, self.has_cross_site_ancestor.unwrap_or(true)))
    }
}

/// One entry of an origin's Local Storage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StorageItem {
    /// Its key.
    pub name: String,
    /// Its value.
    pub value: StoredText,
}

/// The Local Storage of one origin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateOrigin {
    /// Such as `https://example.com`.
    pub origin: String,
    /// What it keeps.
    #[serde(default)]
    pub local_storage: Vec<StorageItem>,
}

impl StateOrigin {
    /// Whether its pages come from a site. Playwright writes no others, and a page of a file has no origin that one could
    /// open again.
    pub fn is_site(&self) -> bool {
        let is = |scheme: &&str| self.origin.starts_with(scheme);
        ["http://", "https://"].iter().any(is)
    }
}

/// All of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StorageState {
    /// Every cookie.
    #[serde(default)]
    pub cookies: Vec<StateCookie>,
    /// Every origin with Local Storage.
    #[serde(default)]
    pub origins: Vec<StateOrigin>,
}

/// The text of a key or a value of Local Storage as Chrome stores it: one byte says how the rest is written.
pub fn local_storage_text(stored: &[u8]) -> Option<String> {
    let (encoding, rest) = stored.split_first()?;
    match encoding {
        0 => {
            let (pairs, left) = rest.as_chunks::<2>();
            let units = pairs.iter().map(|pair| u16::from_le_bytes(*pair));
            let text =
                char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
            left.is_empty().then(|| text.collect())
        }
        // Latin-1 is the beginning of Unicode.
        1 => Some(rest.iter().map(|byte| char::from(*byte)).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn playwrights_file_is_read_and_written_and_values_are_not_shown() {
        let text = r#"{"cookies":[{"name":"sid","value":"secret","domain":".example.com","path":"/","expires":1800000000.5,
            "httpOnly":true,"secure":true,"sameSite":"None"},{"name":"s","value":"v","domain":"a.b"}],
            "origins":[{"origin":"https://example.com","localStorage":[{"name":"k","value":"secret"}]}]}"#;

        let state: StorageState = serde_json::from_str(text).unwrap();

        assert!(!state.cookies[0].is_session() && state.cookies[1].is_session());
        assert_eq!(state.cookies[0].same_site, SameSite::None);
        let written = serde_json::to_value(&state).unwrap();
        assert_eq!(written["cookies"][0]["httpOnly"], true);
        assert_eq!(written["origins"][0]["localStorage"][0]["value"], "secret");
        assert!(!format!("{state:?}").contains("secret"));
    }

    #[test]
    fn a_partition_is_read_and_written_as_playwright_does() {
        let text = r#"{"cookies":[
            {"name":"a","value":"","domain":"a.b","partitionKey":"https://top.example","_crHasCrossSiteAncestor":false},
            {"name":"b","value":"","domain":"a.b","partitionKey":"https://top.example"},
            {"name":"c","value":"","domain":"a.b"}]}"#;

        let state: StorageState = serde_json::from_str(text).unwrap();

        let partitions: Vec<_> = state.cookies.iter().map(StateCookie::partition).collect();
        let top = "https://top.example";
        assert_eq!(partitions, [Some((top, false)), Some((top, true)), None]);
        let written = serde_json::to_value(&state).unwrap();
        assert_eq!(written["cookies"][0]["_crHasCrossSiteAncestor"], false);
        for unsaid in [1, 2] {
            assert_eq!(
                written["cookies"][unsaid].get("_crHasCrossSiteAncestor"),
                None
            );
        }
    }

    #[test]
    fn only_pages_of_sites_have_a_place_in_the_file() {
        let is_site = |origin: &str| {
            let (origin, local_storage) = (origin.to_owned(), Vec::new());
            StateOrigin {
                origin,
                local_storage,
            }
            .is_site()
        };
        assert!(is_site("https://a.example") && is_site("http://localhost:8080"));
        for other in [
            "file://",
            "file:",
            "chrome://newtab",
            "chrome-extension://abc",
            "",
        ] {
            assert!(!is_site(other), "{other}");
        }
    }

    #[test]
    fn stored_text_is_latin_or_utf_16() {
        assert_eq!(
            local_storage_text(b"\x01caf\xe9").as_deref(),
            Some("caf\u{e9}")
        );
        assert_eq!(
            local_storage_text(b"\x00\x3d\xd8\x00\xde").as_deref(),
            Some("\u{1f600}")
        );
        assert_eq!(local_storage_text(b"\x00"), Some(String::new()));
        for bad in [&b""[..], b"\x00a", b"\x02ab"] {
            assert_eq!(local_storage_text(bad), None);
        }
    }
}
