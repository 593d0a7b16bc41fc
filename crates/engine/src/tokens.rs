//! Tokens of the service: who may ask it, and for what.

use crate::error::Error;
use crate::handle::Tokens;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::failure::Failure;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::token::{
    BearerToken, TokenDocument, TokenGrant, TokenId, TokenScope, TokenStatus,
};
use stasis_model::id::{Label, TenantId};
use stasis_model::time::Timestamp;
use stasis_store::documents::changing::ChangingError;
use stasis_store::documents::tokens;

/// What is known of a token: everything but its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TokenRow {
    /// Which.
    pub token_id: TokenId,
    /// Whose data it opens.
    pub tenant: TenantId,
    /// What it allows there.
    pub scope: TokenScope,
    /// Whether it also opens what lies on the server's host.
    pub host: bool,
    /// Whether it counts.
    pub status: TokenStatus,
    /// What it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Who made it.
    pub created_by: Label,
    /// When it was made.
    pub created_at: String,
    /// The same in milliseconds.
    pub created_at_ms: Timestamp,
    /// Until when it counts; for good, if this is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The same in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<Timestamp>,
    /// Since when it does not count any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
    /// The same in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at_ms: Option<Timestamp>,
}

impl TokenRow {
    fn of(document: &TokenDocument, now: Timestamp) -> Self {
        let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
        Self {
            token_id: document.id,
            tenant: document.tenant.clone(),
            scope: document.scope,
            host: document.host,
            status: document.status(now),
            description: document.description.to_string(),
            created_by: document.created_by.clone(),
            created_at: document.created_at_ms.to_string(),
            created_at_ms: document.created_at_ms,
            expires_at: text(document.expires_at_ms),
            expires_at_ms: document.expires_at_ms,
            revoked_at: text(document.revoked_at_ms),
            revoked_at_ms: document.revoked_at_ms,
        }
    }
}

/// A token that was made just now, with its secret.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TokenCreated {
    /// What is known of it.
    #[serde(flatten)]
    pub row: TokenRow,
    /// The token itself. It is stored nowhere, and cannot be shown again.
    pub token: TokenText,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// The text of a token, secret included: written into results, never into logs.
#[derive(Clone, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct TokenText(String);

impl TokenText {
    /// The text, for the one who asked for the token.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for TokenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenText")
    }
}

/// The tokens of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TokenList {
    /// The newest last.
    pub items: Vec<TokenRow>,
    /// What lies among them and cannot be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableToken>,
}

/// A document of a token that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnreadableToken {
    /// Which.
    pub token_id: TokenId,
    /// What is wrong with it.
    pub reason: String,
}

/// A token that does not count any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct TokenRevoked {
    /// What is known of it.
    #[serde(flatten)]
    pub row: TokenRow,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

/// What somebody may do who showed a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenHolder {
    /// Which token.
    pub id: TokenId,
    /// Whose data it opens.
    pub tenant: TenantId,
    /// What it allows there.
    pub scope: TokenScope,
    /// Whether it also opens what lies on the server's host.
    pub host: bool,
    /// Until when it counts.
    pub expires_at: Option<Timestamp>,
}

impl Tokens<'_> {
    /// Makes a token. Its secret is in the result and nowhere else.
    pub async fn create(self, grant: TokenGrant, actor: &Label) -> Result<TokenCreated, Error> {
        let now = self.lineages.now();
        if grant.expires_at.is_some_and(|end| end <= now) {
            let said = "a token that has expired is of no use to anybody";
            return Err(Failure::of(stasis_model::failure::ErrorKind::Invalid, said).into());
        }
        self.store().ensure_trusted().await?;
        let token = BearerToken::random(&*self.rng);
        let op_id = self.lineages.op_id();
        let document = TokenDocument::new(&token, grant, actor.clone(), now, op_id);
        tokens::create(&*self.bucket, &document).await?;
        let row = TokenRow::of(&document, now);
        let warnings = self.recorded(EventKind::TokenCreated, &row, actor).await;
        Ok(TokenCreated {
            row,
            token: TokenText(token.reveal()),
            warnings,
        })
    }

    /// Lists the tokens of one tenant, or of all.
    pub async fn list(self, tenant: Option<&TenantId>) -> Result<TokenList, Error> {
        let now = self.lineages.now();
        let stored = tokens::all(&*self.bucket).await?;
        let is_meant =
            |document: &&TokenDocument| tenant.is_none_or(|tenant| document.tenant == *tenant);
        let documents = stored.tokens.iter().filter(is_meant);
        let mut items: Vec<TokenRow> = documents.map(|one| TokenRow::of(one, now)).collect();
        items.sort_by_key(|row| (row.created_at_ms, row.token_id));
        let unreadable = stored.unreadable.into_iter();
        let unreadable = unreadable.map(|(token_id, reason)| UnreadableToken { token_id, reason });
        Ok(TokenList {
            items,
            unreadable: unreadable.collect(),
        })
    }

    /// Takes a token back. Servers that believed it do so for ten more seconds at most.
    pub async fn revoke(self, id: TokenId, actor: &Label) -> Result<TokenRevoked, Error> {
        self.store().ensure_trusted().await?;
        let (now, op_id) = (self.lineages.now(), self.lineages.op_id());
        let document = tokens::revoke(&*self.bucket, id, now, op_id).await?;
        let row = TokenRow::of(&document, now);
        let warnings = if document.op_id == op_id {
            self.recorded(EventKind::TokenRevoked, &row, actor).await
        } else {
            self.clock_warnings()
        };
        Ok(TokenRevoked { row, warnings })
    }

    /// Who shows this token, or nobody: a token that is not there, expired, revoked or wrong is all the same to whoever asks.
    pub async fn holder(self, token: &BearerToken) -> Result<Option<TokenHolder>, Error> {
        let Some(document) = tokens::find(&*self.bucket, token.id()).await? else {
            // As much work as for one that is there.
            std::hint::black_box(token.digest() == token.digest());
            return Ok(None);
        };
        let admitted = document.admits(token, self.lineages.now());
        Ok(admitted.then_some(TokenHolder {
            id: document.id,
            tenant: document.tenant,
            scope: document.scope,
            host: document.host,
            expires_at: document.expires_at_ms,
        }))
    }

    async fn recorded(self, kind: EventKind, row: &TokenRow, actor: &Label) -> Vec<Warning> {
        let event = self.events().event(kind, Severity::Info, actor);
        let event = event
            .with("token_id", row.token_id.to_string())
            .with("scope", row.scope.to_string())
            .with("host", row.host);
        let mut warnings = self.clock_warnings();
        warnings.extend(self.events().record(&row.tenant, event).await);
        warnings
    }
}

impl From<ChangingError<Failure>> for Error {
    fn from(error: ChangingError<Failure>) -> Self {
        match error {
            ChangingError::Refused(failure) => failure.into(),
            ChangingError::Read(error) => error.into(),
            ChangingError::Write(error) => error.into(),
            other => {
                let kind = stasis_model::failure::Kinded::kind(&other);
                Failure::of(kind, other).into()
            }
        }
    }
}
