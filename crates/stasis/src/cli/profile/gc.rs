//! `stasis profile gc`

use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::keep::KeepPeriodArgs;
use crate::cli::output::{plural, printable, table};
use crate::cli::progress::timed;
use crate::report::Exit;
use clap::Args;
use stasis_engine::kind::profile::{Collected, LineageCollected, ProfileGc};
use stasis_engine::model::id::{ProfileRef, TenantId};
use stasis_engine::model::policy::retention::OnDoubt;

#[derive(Debug, Args)]
pub(in crate::cli) struct ProfileGcArgs {
    /// <tenant>/<profile>[@<chrome-major>] [default: all profiles]
    subject: Option<ProfileRef>,
    /// Only this tenant's profiles [default: all tenants]
    #[arg(long, conflicts_with = "subject")]
    tenant: Option<TenantId>,
    /// Keep the newest N, and judge even if the tenant's policy is off [default: the tenant's policy]
    #[arg(long, visible_alias = "keep-last", value_name = "N")]
    keep_newest: Option<u64>,
    #[command(flatten)]
    periods: KeepPeriodArgs,
    /// Keep what was rolled back to within D days, and judge even if the policy is off [default: the tenant's policy]
    #[arg(long, value_name = "D")]
    keep_rollback_days: Option<u64>,
    /// Judge ages even while clocks disagree
    #[arg(long)]
    trust_clock: bool,
    /// Only show what would be deleted, and why
    #[arg(long)]
    dry_run: bool,
}

impl ProfileGcArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let cmd = ProfileGc {
            subject: self.subject,
            tenant: self.tenant,
            keep_newest: self.keep_newest,
            keep_periods: self.periods.given(),
            keep_rollback_days: self.keep_rollback_days,
            on_doubt: if self.trust_clock {
                OnDoubt::JudgeAnyway
            } else {
                OnDoubt::RefuseAges
            },
            dry_run: self.dry_run,
        };
        let engine = context.engine().await?;
        let work = Box::pin(engine.profiles().gc(&cmd));
        let collected = timed(context.output, "collecting", work).await?;
        context.output.warn(&collected.warnings);
        for doubt in collected
            .lineages
            .iter()
            .filter_map(|one| one.clock_doubt.as_ref())
        {
            let text = format!("warning: {doubt}; --trust-clock judges all the same");
            context.output.say(&text);
        }
        context.output.result(&collected, collected_text)?;
        let failed = collected.lineages.iter().any(|one| one.failure.is_some());
        Ok(if failed { Exit::Corrupt } else { Exit::Done })
    }
}

pub(super) fn collected_text(collected: &Collected) -> String {
    let (fate, verb) = if collected.dry_run {
        ("would go", "would remove")
    } else {
        ("goes", "removed")
    };
    let rows: Vec<Vec<String>> = collected
        .lineages
        .iter()
        .flat_map(|one| lines(one, fate))
        .collect();
    let summary = format!(
        "{verb} {}, {}, of {}",
        plural(collected.objects_removed, "object"),
        size(collected.bytes_removed),
        plural(collected.lineages.len() as u64, "profile")
    );
    if rows.is_empty() {
        return summary;
    }
    format!(
        "{}\n{summary}",
        table(&["PROFILE", "WHAT", "", "BECAUSE"], rows)
    )
}

fn lines(one: &LineageCollected, fate: &str) -> Vec<Vec<String>> {
    let line = |what: String, fate: &str, because: String| {
        vec![one.subject.to_string(), what, fate.to_owned(), because]
    };
    let verdicts = one.verdicts.iter().map(|verdict| {
        let fate = if verdict.kept { "stays" } else { fate };
        line(verdict.sha256.prefix(), fate, verdict.because.join(", "))
    });
    let preserved = one.preserved.iter();
    let preserved = preserved.map(|one| line(printable(&one.what), "stays", one.because.clone()));
    let deleted = one.removed.iter().filter(|removed| {
        let judged =
            |verdict: &&stasis_engine::kind::profile::GcVerdict| verdict.sha256 == removed.sha256;
        one.verdicts.iter().find(judged).is_none()
    });
    let deleted = deleted.map(|one| {
        let name = one.key.rsplit('/').next().unwrap_or(&one.key);
        line(
            printable(name),
            fate,
            "it was deleted, or never finished".to_owned(),
        )
    });
    let failure = one.failure.iter();
    let failure = failure.map(|why| line(String::new(), "left alone", why.clone()));
    verdicts
        .chain(deleted)
        .chain(preserved)
        .chain(failure)
        .collect()
}
