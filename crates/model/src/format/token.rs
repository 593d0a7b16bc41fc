//! Tokens: who may ask the service, and for what.
//!
//! A token is an id and a secret, `stasis_<id>_<secret>`. The id is where its document lies, `auth/tokens/<id>.json`, and is what
//! logs and lists name; the document has the SHA-256 of the secret, which has 256 random bits and needs no slow hash.
//!
//! *Always true:* the secret is in no document, and is never printed but by [`BearerToken::reveal`], when the token is made.

use crate::format::document::Document;
use crate::id::{Label, OpId, TenantId};
use crate::invalid::Invalid;
use crate::rng::Rng;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write as _};
use std::str::FromStr;
use subtle::ConstantTimeEq as _;

/// What every token begins with.
const HEAD: &str = "stasis";
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

/// The bytes of lower-case hexadecimal digits, if these are exactly as many.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != N * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Which token it is: says nothing of the secret, and may be shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(with = "String"))]
#[serde(try_from = "String", into = "String")]
pub struct TokenId([u8; ID_BYTES]);

impl fmt::Display for TokenId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "TokenId({self})")
    }
}

impl FromStr for TokenId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("the id of a token has 16 lower-case hexadecimal digits");
        unhex(text).map(Self).ok_or_else(bad)
    }
}

impl TryFrom<String> for TokenId {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<TokenId> for String {
    fn from(id: TokenId) -> Self {
        id.to_string()
    }
}

/// A token as its holder has it. It has no `Display`, and its `Debug` has no secret.
#[derive(Clone)]
pub struct BearerToken {
    id: TokenId,
    secret: [u8; SECRET_BYTES],
}

impl BearerToken {
    /// A token that was never given to anybody.
    pub fn random(rng: &dyn Rng) -> Self {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        rng.fill(&mut id);
        rng.fill(&mut secret);
        Self {
            id: TokenId(id),
            secret,
        }
    }

    /// Which token it says it is.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The whole text, secret included: for the one who asked for the token, once.
    pub fn reveal(&self) -> String {
        format!("{HEAD}_{}_{}", self.id, hex(&self.secret))
    }

    /// What is stored of the secret.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest(Sha256::digest(self.secret).into())
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "BearerToken({})", self.id)
    }
}

impl FromStr for BearerToken {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        // What was found is not repeated: most of it may be a secret.
        let bad = || Invalid::new("a token has the form stasis_<16 digits>_<64 digits>");
        let rest = text.strip_prefix(HEAD).ok_or_else(bad)?;
        let rest = rest.strip_prefix('_').ok_or_else(bad)?;
        let (id, secret) = rest.split_once('_').ok_or_else(bad)?;
        let (id, secret) = unhex(id).zip(unhex(secret)).ok_or_else(bad)?;
        Ok(Self {
            id: TokenId(id),
            secret,
        })
    }
}

/// SHA-256 of the secret of a token. Two are compared in constant time.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretDigest([u8; 32]);

impl PartialEq for SecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SecretDigest {}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretDigest")
    }
}

impl TryFrom<String> for SecretDigest {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        let bad = || Invalid::new("the digest of a secret has 64 hexadecimal digits");
        unhex(&text).map(Self).ok_or_else(bad)
    }
}

impl From<SecretDigest> for String {
    fn from(digest: SecretDigest) -> Self {
        hex(&digest.0)
    }
}

/// What a token allows; each scope allows what the ones before it allow.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    /// Look at everything of the tenant.
    #[default]
    Read,
    /// Save, restore, roll back, lease.
    Write,
    /// Delete, and throw holders of leases out.
    Admin,
}

crate::display_as_serialized!(TokenScope);

impl FromStr for TokenScope {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            "admin" => Ok(Self::Admin),
            _ => Err(Invalid::new("a scope is read, write or admin")),
        }
    }
}

/// What a new token is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenGrant {
    /// Whose data it opens.
    pub tenant: TenantId,
    /// What it allows there.
    pub scope: TokenScope,
    /// Whether it also opens what lies on the host of the server that is asked: directories, containers, workspaces of sessions.
    pub host: bool,
    /// Until when it counts; for good, if nobody says so.
    pub expires_at: Option<Timestamp>,
    /// What it is for, in the words of whoever made it.
    pub description: Label,
}

/// The document `auth/tokens/<id>.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TokenDocument {
    version: u64,
    /// Which token.
    pub id: TokenId,
    /// Whose data it opens.
    pub tenant: TenantId,
    /// What it allows there.
    pub scope: TokenScope,
    /// Whether it also opens what lies on the host of the server that is asked.
    pub host: bool,
    /// What its secret must be.
    pub secret_sha256: SecretDigest,
    /// When it was made.
    pub created_at_ms: Timestamp,
    /// Who made it.
    pub created_by: Label,
    /// What it is for.
    #[serde(default)]
    pub description: Label,
    /// Until when it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<Timestamp>,
    /// Since when it does not count any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at_ms: Option<Timestamp>,
    /// The operation that wrote these bytes.
    pub op_id: OpId,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Document for TokenDocument {
    const NAME: &'static str = "the token";
}

/// Whether a token counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenStatus {
    /// Whoever has it may ask.
    Valid,
    /// Its time is over.
    Expired,
    /// Somebody took it back.
    Revoked,
}

crate::display_as_serialized!(TokenStatus);

impl TokenDocument {
    /// The document of a token that is made now.
    pub fn new(
        token: &BearerToken,
        grant: TokenGrant,
        by: Label,
        now: Timestamp,
        op_id: OpId,
    ) -> Self {
        Self {
            version: Self::VERSION,
            id: token.id(),
            tenant: grant.tenant,
            scope: grant.scope,
            host: grant.host,
            secret_sha256: token.digest(),
            created_at_ms: now,
            created_by: by,
            description: grant.description,
            expires_at_ms: grant.expires_at,
            revoked_at_ms: None,
            op_id,
            extra: Map::new(),
        }
    }

    /// Whether it counts at `now`.
    pub fn status(&self, now: Timestamp) -> TokenStatus {
        if self.revoked_at_ms.is_some() {
            TokenStatus::Revoked
        } else if self.expires_at_ms.is_some_and(|end| end <= now) {
            TokenStatus::Expired
        } else {
            TokenStatus::Valid
        }
    }

    /// Whether whoever shows `token` may use it at `now`. The secret is compared whatever else is wrong.
    pub fn admits(&self, token: &BearerToken, now: Timestamp) -> bool {
        let is_it = self.secret_sha256 == token.digest();
        is_it && self.id == token.id() && self.status(now) == TokenStatus::Valid
    }

    /// The same, taken back; a token that was taken back stays as it was.
    #[must_use = "the document is not changed in place"]
    pub fn revoked(mut self, now: Timestamp, op_id: OpId) -> Self {
        if self.revoked_at_ms.is_none() {
            self.revoked_at_ms = Some(now);
            self.op_id = op_id;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::document;

    /// Counts upwards: two tokens of it differ.
    #[derive(Debug)]
    struct CountingRng(std::sync::atomic::AtomicU64);

    impl Rng for CountingRng {
        fn op_id(&self) -> OpId {
            OpId::default()
        }

        fn below(&self, bound: u64) -> u64 {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % bound.max(1)
        }
    }

    fn rng() -> CountingRng {
        CountingRng(0.into())
    }

    fn made(token: &BearerToken, expires_at: Option<Timestamp>) -> TokenDocument {
        let grant = TokenGrant {
            tenant: "acme".parse().unwrap(),
            scope: TokenScope::Write,
            host: false,
            expires_at,
            description: Label::nobody(),
        };
        let now = Timestamp::from_millis(1_000);
        TokenDocument::new(token, grant, Label::nobody(), now, OpId::default())
    }

    #[test]
    fn a_token_is_read_as_it_was_written_and_shown_without_its_secret() {
        let token = BearerToken::random(&rng());
        let text = token.reveal();

        let read: BearerToken = text.parse().unwrap();

        assert_eq!(text.len(), "stasis_".len() + 16 + 1 + 64);
        assert_eq!((read.id(), read.digest()), (token.id(), token.digest()));
        let secret = text.rsplit('_').next().unwrap();
        let document = String::from_utf8(document::render(&made(&token, None))).unwrap();
        for shown in [format!("{token:?}"), format!("{read:?}"), document] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn only_the_exact_form_is_a_token() {
        let text = BearerToken::random(&rng()).reveal();
        let cases = [
            String::new(),
            text.to_uppercase(),
            format!(" {text}"),
            format!("{text}0"),
            text[..text.len() - 1].to_owned(),
            text.replace("stasis_", "stasis"),
            text.replace("stasis_", ""),
            text.replacen('_', "-", 1),
        ];
        for case in cases {
            let refused = case.parse::<BearerToken>().unwrap_err().to_string();
            assert!(case.is_empty() || !refused.contains(&case), "{refused}");
        }
    }

    #[test]
    fn a_token_counts_until_it_expires_or_is_revoked_and_only_with_its_secret() {
        let rng = rng();
        let (token, other) = (BearerToken::random(&rng), BearerToken::random(&rng));
        let end = Timestamp::from_millis(5_000);
        let document = made(&token, Some(end));
        let before = Timestamp::from_millis(4_999);

        assert!(document.admits(&token, before));
        assert!(!document.admits(&token, end));
        assert!(!document.admits(&other, before));
        let forged = BearerToken {
            id: token.id(),
            secret: other.secret,
        };
        assert!(!document.admits(&forged, before));
        let revoked = document.clone().revoked(before, OpId::default());
        assert!(!revoked.admits(&token, before));
        assert_eq!(revoked.status(end), TokenStatus::Revoked);
        let again = revoked.clone().revoked(end, OpId::default());
        assert_eq!(again.revoked_at_ms, Some(before));
    }

    #[test]
    fn a_scope_allows_what_the_ones_before_it_allow() {
        assert!(TokenScope::Read < TokenScope::Write && TokenScope::Write < TokenScope::Admin);
        for scope in [TokenScope::Read, TokenScope::Write, TokenScope::Admin] {
            assert_eq!(scope.to_string().parse::<TokenScope>().unwrap(), scope);
        }
    }
}
