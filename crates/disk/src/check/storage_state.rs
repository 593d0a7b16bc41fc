//! What a browser profile in an archive keeps for pages: its cookies with or without their values, and its Local Storage.
//!
//! Chromium on Linux encrypts the values of cookies. With `--password-store=basic` the key is the same everywhere: the
//! beginning `v10`, AES-128 in CBC mode, a key derived from a constant. With a keyring (`v11`) the key stays on its host,
//! and such values cannot be read here. Since version 24 of the schema the SHA-256 of the host stands before the value.
//!
//! *Always true:* nothing in the archive is trusted; what cannot be read is named with the reason, and never reads as
//! "nothing there". No value is in any message.

use super::identity::{Part, copied_cookies, quick, storage_files};
use super::leveldb;
use super::sqlite::{self, CookieRow, CookieRows, RowValues};
use super::{CheckError, CheckSettings, Spawn};
use crate::form::archive::Archive;
use aws_lc_rs::cipher::{AES_128, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::digest;
use aws_lc_rs::iv::FixedLength;
use stasis_model::chrome::CookieLife;
use stasis_model::logins::CookieFacts;
use stasis_model::storage_state::{
    SameSite, StateCookie, StateOrigin, StorageItem, StorageState, local_storage_text,
};
use stasis_model::tree::EntryPath;
use std::collections::{BTreeMap, BTreeSet};

/// PBKDF2-HMAC-SHA1 of `peanuts` with the salt `saltysalt`, once: what Chromium takes where there is no keyring.
const BASIC_KEY: [u8; 16] = [
    0xfd, 0x62, 0x1f, 0xe5, 0xa2, 0xb4, 0x02, 0x53, 0x9d, 0xfa, 0x14, 0x7c, 0xa9, 0x27, 0x27, 0x78,
];
const BASIC: &[u8] = b"v10";
/// From this version of the schema on a digest of the host stands before the value.
const BOUND_TO_HOST: i64 = 24;
const DIGEST: usize = 32;
/// The profile whose state is exchanged: frameworks know no other.
const FIRST_PROFILE: &[u8] = b"Default";
/// Chrome's own, which keep nothing of their user's.
const INTERNAL: [&[u8]; 2] = [b"System Profile", b"Guest Profile"];
/// How the key of an entry of Local Storage begins.
const ENTRY: &[u8] = b"_";

/// What was read, and what could not be.
#[derive(Clone, PartialEq, Debug)]
pub struct PartlyRead<T> {
    /// What was read.
    pub found: T,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// What all cookies in the archive, whose entries are given with their sizes, say of themselves.
pub fn cookie_facts(
    archive: &Archive,
    entries: &[(EntryPath, u64)],
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<PartlyRead<Vec<CookieFacts>>, CheckError> {
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    for (path, size) in entries
        .iter()
        .filter(|(path, _)| profile_of(path).is_some())
    {
        match rows(archive, (path, *size), RowValues::Without, settings, spawn)? {
            Ok(all) => found.extend(all.rows.into_iter().map(facts)),
            Err(why) => unread.push(format!("{path}: {why}")),
        }
    }
    Ok(PartlyRead { found, unread })
}

/// Everything that Playwright calls the storage state of the first profile in the archive; that there are others is said.
pub fn storage_state(
    archive: &Archive,
    entries: &[(EntryPath, u64)],
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<PartlyRead<StorageState>, CheckError> {
    let mut read = PartlyRead {
        found: StorageState::default(),
        unread: Vec::new(),
    };
    let mut storage: Vec<Part<'_>> = Vec::new();
    let mut others: BTreeSet<&[u8]> = BTreeSet::new();
    for (path, size) in entries {
        let names: Vec<&[u8]> = path.components().collect();
        match (profile_of(path), &names[..]) {
            (Some(FIRST_PROFILE), _) => {
                match rows(archive, (path, *size), RowValues::With, settings, spawn)? {
                    Ok(all) => read.add_cookies(all),
                    Err(why) => read.unread.push(format!("{path}: {why}")),
                }
            }
            (None, [FIRST_PROFILE, b"Local Storage", b"leveldb", file]) => {
                storage.push((path, file, *size));
            }
            (Some(other), _) => {
                others.insert(other);
            }
            (None, [other, b"Local Storage", b"leveldb", _]) => {
                others.insert(*other);
            }
            _ => {}
        }
    }
    if !storage.is_empty() {
        let files = storage_files(archive, &storage, settings)?;
        let entries = files.and_then(|files| leveldb::entries(&files, ENTRY, &quick(settings)));
        match entries {
            Ok(entries) => read.add_storage(&entries),
            Err(why) => read.unread.push(format!("Local Storage: {why}")),
        }
    }
    read.add_others(&others);
    Ok(read)
}

/// The profile whose cookies are in a file, if it is such a file.
fn profile_of(path: &EntryPath) -> Option<&[u8]> {
    let names: Vec<&[u8]> = path.components().collect();
    match names[..] {
        [profile, b"Cookies"] | [profile, b"Network", b"Cookies"] => Some(profile),
        _ => None,
    }
}

fn rows(
    archive: &Archive,
    (path, size): (&EntryPath, u64),
    values: RowValues,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<Result<CookieRows, String>, CheckError> {
    match copied_cookies(archive, path, size, settings)? {
        Ok((scratch, bytes)) => sqlite::read_cookie_rows(&scratch, bytes, values, settings, spawn),
        Err(why) => Ok(Err(why)),
    }
}

fn facts(row: CookieRow) -> CookieFacts {
    CookieFacts {
        life: row.life(),
        domain: row.host,
        name: row.name,
        http_only: row.is_http_only,
        secure: row.is_secure,
    }
}

impl PartlyRead<StorageState> {
    fn add_cookies(&mut self, all: CookieRows) {
        let mut locked = 0_u64;
        for row in all.rows {
            match value(&row, all.version) {
                Some(value) => self.found.cookies.push(cookie(row, value)),
                None => locked += 1,
            }
        }
        if locked > 0 {
            let whose = if locked == 1 {
                "the value of 1 cookie".to_owned()
            } else {
                format!("the values of {locked} cookies")
            };
            self.unread.push(format!(
                "{whose}: encrypted with the keyring of the host that wrote it, or in an unknown way"
            ));
        }
    }

    fn add_others(&mut self, others: &BTreeSet<&[u8]>) {
        for other in others.iter().filter(|other| !INTERNAL.contains(other)) {
            let name = String::from_utf8_lossy(other);
            self.unread.push(format!(
                "{name}: another profile of the browser; the format has a place for one, which is `Default`"
            ));
        }
    }

    fn add_storage(&mut self, entries: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let mut origins: BTreeMap<String, Vec<StorageItem>> = BTreeMap::new();
        let mut odd = 0_u64;
        for (key, value) in entries {
            match storage_item(key, value) {
                Some((origin, item)) => origins.entry(origin).or_default().push(item),
                None => odd += 1,
            }
        }
        if odd > 0 {
            let noun = if odd == 1 { "entry" } else { "entries" };
            self.unread.push(format!(
                "{odd} {noun} of Local Storage: of embedded pages, or in an unknown form"
            ));
        }
        let origins = origins
            .into_iter()
            .map(|(origin, local_storage)| StateOrigin {
                origin,
                local_storage,
            });
        self.found.origins.extend(origins);
    }
}

/// `_<origin>\0<key>`; where an origin is embedded in another one's pages it has a `^`, for which the format has no place.
fn storage_item(key: &[u8], value: &[u8]) -> Option<(String, StorageItem)> {
    let key = key.strip_prefix(ENTRY)?;
    let end = key.iter().position(|byte| *byte == 0)?;
    let origin = std::str::from_utf8(&key[..end]).ok()?;
    let origin = (!origin.contains('^')).then(|| plain_origin(origin).to_owned())?;
    let item = StorageItem {
        name: local_storage_text(&key[end + 1..])?,
        value: local_storage_text(value)?.into(),
    };
    Some((origin, item))
}

/// An origin without a slash after its host; one that has no host, as that of files, stays as it is.
fn plain_origin(origin: &str) -> &str {
    let plain = origin.strip_suffix('/');
    plain
        .filter(|plain| !plain.ends_with('/'))
        .unwrap_or(origin)
}

fn cookie(row: CookieRow, value: String) -> StateCookie {
    #[expect(clippy::cast_precision_loss, reason = "seconds of this age fit")]
    let expires = match row.life() {
        CookieLife::Until(moment) => moment.millis() as f64 / 1000.0,
        CookieLife::Session | CookieLife::Unknown => -1.0,
    };
    StateCookie {
        name: row.name,
        value: value.into(),
        domain: row.host,
        path: row.path,
        expires,
        http_only: row.is_http_only,
        secure: row.is_secure,
        same_site: SameSite::of_column(row.same_site),
        has_cross_site_ancestor: row
            .has_cross_site_ancestor
            .filter(|_| !row.top_site.is_empty()),
        partition_key: (!row.top_site.is_empty()).then_some(row.top_site),
    }
}

/// The value of a cookie; `None` when we have no key to it.
fn value(row: &CookieRow, version: i64) -> Option<String> {
    let plain = match row.encrypted.strip_prefix(BASIC) {
        None if row.encrypted.is_empty() => row.value.clone(),
        None => return None,
        Some(encrypted) => {
            let plain = decrypted(encrypted)?;
            if version < BOUND_TO_HOST {
                plain
            } else {
                let host = digest::digest(&digest::SHA256, row.host.as_bytes());
                let (found, value) = plain.split_at_checked(DIGEST)?;
                (found == host.as_ref()).then(|| value.to_vec())?
            }
        }
    };
    String::from_utf8(plain).ok()
}

fn decrypted(encrypted: &[u8]) -> Option<Vec<u8>> {
    let key = UnboundCipherKey::new(&AES_128, &BASIC_KEY).ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
    let spaces = DecryptionContext::Iv128(FixedLength::from([b' '; 16]));
    let mut bytes = encrypted.to_vec();
    Some(key.decrypt(&mut bytes, spaces).ok()?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: &str, encrypted: &[u8]) -> CookieRow {
        CookieRow {
            host: host.to_owned(),
            name: "sid".to_owned(),
            path: "/".to_owned(),
            top_site: String::new(),
            value: b"plain".to_vec(),
            encrypted: encrypted.to_vec(),
            expires_utc: Some(0),
            is_persistent: Some(true),
            is_secure: true,
            is_http_only: true,
            same_site: -1,
            has_cross_site_ancestor: None,
        }
    }

    /// `openssl enc -aes-128-cbc` of `value` with the key and sixteen spaces.
    const OLDER: [u8; 16] = [
        0xa3, 0xa1, 0x9d, 0xf4, 0xac, 0x0e, 0x38, 0x17, 0x9c, 0x41, 0xf5, 0x21, 0x15, 0x49, 0x5d,
        0xa1,
    ];
    /// The same of the SHA-256 of `localhost`, and `value` behind it.
    const BOUND: [u8; 48] = [
        0xa6, 0xfc, 0x07, 0xb9, 0x28, 0xd9, 0x7d, 0xd4, 0xb0, 0x2d, 0x58, 0x3b, 0x4a, 0xbe, 0x53,
        0x64, 0xcc, 0x8d, 0x0d, 0x8b, 0xf0, 0x3e, 0x75, 0x60, 0x6a, 0xaa, 0x3b, 0x46, 0xed, 0x47,
        0xef, 0x5f, 0x68, 0x99, 0xe4, 0x72, 0x54, 0xc7, 0x06, 0xe1, 0xc3, 0xfc, 0xce, 0xf0, 0xf1,
        0x81, 0x20, 0x5e,
    ];

    #[test]
    fn a_value_is_read_with_the_key_that_every_host_has() {
        let older = [BASIC, &OLDER].concat();
        assert_eq!(
            value(&row("localhost", &older), 23).as_deref(),
            Some("value")
        );
        let bound = [BASIC, &BOUND].concat();
        assert_eq!(
            value(&row("localhost", &bound), 24).as_deref(),
            Some("value")
        );
        assert_eq!(value(&row("localhost", b""), 24).as_deref(), Some("plain"));
    }

    #[test]
    fn a_value_of_another_host_or_another_key_is_not_read() {
        let bound = [BASIC, &BOUND].concat();
        assert_eq!(value(&row("elsewhere", &bound), 24), None);
        let keyring = [&b"v11"[..], &BOUND].concat();
        assert_eq!(value(&row("localhost", &keyring), 24), None);
        assert_eq!(value(&row("localhost", b"v10short"), 24), None);
    }

    #[test]
    fn the_key_of_an_entry_names_its_origin() {
        let (origin, item) = storage_item(b"_http://localhost:8080\0\x01k", b"\x01v").unwrap();
        assert_eq!((&*origin, &*item.name), ("http://localhost:8080", "k"));
        assert_eq!(item.value.expose(), "v");
        let (origin, _) = storage_item(b"_file://\0\x01k", b"\x01v").unwrap();
        assert_eq!(origin, "file://", "and nothing that nobody else calls so");
        let embedded = storage_item(b"_https://a.example/^0https://b.example\0\x01k", b"\x01v");
        assert_eq!(embedded, None);
    }
}
