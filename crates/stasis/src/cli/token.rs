//! `stasis token …`

use super::lease::operator;
use super::output::{printable, table};
use super::{CliContext, duration, system_clock};
use crate::report::Exit;
use clap::{Args, Subcommand};
use stasis_engine::model::format::token::{TokenGrant, TokenId, TokenScope, TokenStatus};
use stasis_engine::model::id::{Label, TenantId};
use stasis_engine::model::time::{Clock as _, Timestamp};
use stasis_engine::tokens::{TokenCreated, TokenList, TokenRevoked, TokenRow};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token for one tenant; it is shown once, alone on the last line
    Create(CreateArgs),
    /// List tokens, without their secrets
    List {
        /// Only this tenant's [default: all tenants]
        #[arg(long)]
        tenant: Option<TenantId>,
    },
    /// Take a token back: servers refuse it from now on, at the latest ten seconds later
    Revoke {
        /// The id of the token: its first 16 digits
        id: TokenId,
    },
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Whose data it opens
    #[arg(long)]
    tenant: TenantId,
    /// What it allows: read, write (save, restore, roll back, lease), admin (delete, force-unlock)
    #[arg(long)]
    scope: TokenScope,
    /// Until when it counts, from now: 30d, 12h [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = duration::positive)]
    expires: Option<Duration>,
    /// It also opens what lies on the server's host: directories, containers, workspaces of sessions
    #[arg(long)]
    host: bool,
    /// What it is for, for the list
    #[arg(long, value_name = "TEXT")]
    description: Option<Label>,
}

impl TokenCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match self {
            Self::Create(args) => args.run(context).await,
            Self::List { tenant } => {
                let tokens = context.engine().await?;
                let list = tokens.tokens().list(tenant.as_ref()).await?;
                for bad in &list.unreadable {
                    let why = printable(&bad.reason);
                    let warning = format!("warning: token {} is refused: {why}", bad.token_id);
                    context.output.say(&warning);
                }
                let now = system_clock().now();
                context.output.result(&list, |list| list_text(list, now))?;
                Ok(if list.unreadable.is_empty() {
                    Exit::Done
                } else {
                    Exit::Corrupt
                })
            }
            Self::Revoke { id } => {
                let engine = context.engine().await?;
                let revoked = engine.tokens().revoke(id, &operator()).await?;
                context.output.warn(&revoked.warnings);
                context.output.result(&revoked, revoked_text)?;
                Ok(Exit::Done)
            }
        }
    }
}

impl CreateArgs {
    async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let expires_at = self.expires.map(|left| system_clock().now().plus(left));
        let grant = TokenGrant {
            tenant: self.tenant,
            scope: self.scope,
            host: self.host,
            expires_at,
            description: self.description.unwrap_or_default(),
        };
        let engine = context.writable_engine().await?;
        let created = engine.tokens().create(grant, &operator()).await?;
        context.output.warn(&created.warnings);
        context.output.result(&created, created_text)?;
        Ok(Exit::Done)
    }
}

/// The token stands alone on the last line, for `| tail -n 1`.
fn created_text(created: &TokenCreated) -> String {
    let TokenRow {
        token_id,
        tenant,
        scope,
        ..
    } = &created.row;
    let host = if created.row.host {
        ", and what lies on the server's host"
    } else {
        ""
    };
    let end = match &created.row.expires_at {
        Some(end) => format!("until {end}"),
        None => "until it is revoked".to_owned(),
    };
    format!(
        "Made token {token_id}: {scope} for {tenant}{host}, {end}\nIt is shown only now. Take it back with: stasis token revoke {token_id}\n{}",
        created.token.reveal()
    )
}

fn list_text(list: &TokenList, now: Timestamp) -> String {
    let row = |row: &TokenRow| {
        let end = match (row.status, &row.expires_at) {
            (TokenStatus::Revoked, _) => "revoked".to_owned(),
            (TokenStatus::Expired, _) => "expired".to_owned(),
            (TokenStatus::Valid, Some(end)) => end.clone(),
            (TokenStatus::Valid, None) => "never".to_owned(),
        };
        vec![
            row.token_id.to_string(),
            row.tenant.to_string(),
            row.scope.to_string(),
            if row.host { "yes" } else { "no" }.to_owned(),
            row.created_at_ms.age(now),
            end,
            printable(&row.description),
        ]
    };
    let head = [
        "TOKEN",
        "TENANT",
        "SCOPE",
        "HOST",
        "MADE",
        "EXPIRES",
        "DESCRIPTION",
    ];
    table(&head, list.items.iter().map(row).collect())
}

fn revoked_text(revoked: &TokenRevoked) -> String {
    let TokenRow {
        token_id, tenant, ..
    } = &revoked.row;
    format!("Revoked token {token_id} of {tenant}: servers refuse it within ten seconds")
}
