//! What the token may do that a request shows.

use super::directory::OwnDirectory;
use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::TenantId;

/// `GET /v1/token`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowToken {}

/// Whose data the token opens, and what it allows there.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct ShownToken {
    tenant: TenantId,
    scope: TokenScope,
    /// Whether it opens what lies on the server's own host, too.
    host: bool,
    /// Beneath which directories of that host it saves and restores; only for a token that opens them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roots: Vec<String>,
    /// The directory that the service shows, if it is one of `stasis ui`.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
    /// What its acts have as `actor` in the log of events.
    actor: String,
}

impl Endpoint for ShowToken {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/token";
    const NAME: &'static str = "show_token";
    const SUMMARY: &'static str = "Say whose data the token opens, and what it allows there";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = ShownToken;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<ShownToken>, Problem> {
        let scopes = [TokenScope::Admin, TokenScope::Write, TokenScope::Read];
        let most = scopes.into_iter().find(|scope| call.caller.may(*scope));
        let host = call.caller.may_on_host();
        let roots = call.roots.named().filter(|_| host);
        Ok(ShownToken {
            tenant: call.tenant()?,
            scope: most.unwrap_or_default(),
            roots: roots.map(|root| root.display().to_string()).collect(),
            directory: call.directory.as_deref().map(OwnDirectory::name),
            host,
            actor: call.actor().to_string(),
        }
        .into())
    }
}
