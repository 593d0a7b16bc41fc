//! `stasis profile logins`

use super::who::spawn;
use crate::cli::CliContext;
use crate::cli::output::{plural, printable, table, word};
use crate::cli::progress::cancel_on_signals;
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::profile::{InspectProfile, ProfileLogins, Wanted};
use stasis_engine::model::id::ProfileRef;
use stasis_engine::model::logins::{LoginState, SiteLogin};
use stasis_engine::model::time::Timestamp;

/// Which snapshot is looked into.
#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// <tenant>/<profile>[@<chrome-major>]; the major is needed when there are several
    subject: ProfileRef,
    /// The snapshot: the beginning of its sha256, `latest`, or `latest~2` [default: the active one]
    #[arg(long, value_name = "SNAPSHOT")]
    sha: Option<Wanted>,
}

impl InspectArgs {
    pub(super) fn command(self, context: &CliContext) -> anyhow::Result<InspectProfile> {
        Ok(InspectProfile {
            subject: self.subject,
            wanted: self.sha.unwrap_or_default(),
            scratch: context.spool()?,
            spawn: spawn()?,
            cancel: cancel_on_signals()?,
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ProfileLoginsArgs {
    #[command(flatten)]
    inspect: InspectArgs,
    /// Also sites whose cookies do not look like a session's
    #[arg(long)]
    all: bool,
}

impl ProfileLoginsArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let cmd = self.inspect.command(context)?;
        let mut logins = engine.profiles().logins(&cmd).await?;
        let all = logins.sites.len();
        if !self.all {
            logins
                .sites
                .retain(|one| one.state != LoginState::CookiesOnly);
        }
        let hidden = (all - logins.sites.len()) as u64;
        context.output.warn(&logins.warnings);
        warn_unread(context, &logins.unread);
        context
            .output
            .result(&logins, |logins| text(logins, hidden))?;
        Ok(if logins.unread.is_empty() {
            Exit::Done
        } else {
            Exit::Incomplete
        })
    }
}

/// Says what could not be looked into.
pub(super) fn warn_unread(context: &CliContext, unread: &[String]) {
    for what in unread {
        let what = printable(what);
        context
            .output
            .say(&format!("warning: could not be read: {what}"));
    }
}

fn text(logins: &ProfileLogins, hidden: u64) -> String {
    let head = ["SITE", "STATE", "COOKIES", "EXPIRES"];
    let rows = logins.sites.iter().map(|site| row(site, logins.at_ms));
    let rows: Vec<Vec<String>> = rows.collect();
    let title = format!(
        "{} as of {}, captured {}",
        logins.subject,
        logins.sha256.prefix(),
        logins.captured_at_ms,
    );
    let sites = if rows.is_empty() {
        "no site has a lasting cookie that looks like a session's".to_owned()
    } else {
        table(&head, rows)
    };
    let more = match hidden {
        0 => String::new(),
        count => format!(
            "\n{} with other cookies; --all shows them",
            plural(count, "site")
        ),
    };
    format!("{title}\n{sites}{more}")
}

fn row(site: &SiteLogin, now: Timestamp) -> Vec<String> {
    let cookies = match site.expired {
        0 => site.cookies.to_string(),
        expired => format!("{} ({expired} expired)", site.cookies),
    };
    let ends = site.expires_at_ms;
    vec![
        printable(&site.site),
        word(&site.state).replace('_', " "),
        cookies,
        ends.map_or_else(String::new, |at| distance(at, now)),
    ]
}

/// When something is, as seen from now.
fn distance(at: Timestamp, now: Timestamp) -> String {
    let (ahead, behind) = (at.since(now), now.since(at));
    let span = ahead.max(behind).as_secs();
    let (count, unit) = match span {
        0..7_200 => (span / 60, "minute"),
        7_200..172_800 => (span / 3_600, "hour"),
        _ => (span / 86_400, "day"),
    };
    let span = plural(count, unit);
    if ahead > behind {
        format!("in {span}")
    } else {
        format!("{span} ago")
    }
}
