//! `stasis lease …`

use super::CliContext;
use super::claim::{ClaimArgs, lineage, named};
use super::duration;
use super::hold;
use super::output::table;
use crate::report::{Exit, holder_lines};
use anyhow::bail;
use clap::Subcommand;
use stasis_engine::lease::{ForceUnlock, Shown};
use stasis_engine::model::format::lease::{Fence, LockState};
use stasis_engine::model::id::{Label, Lineage};
use stasis_engine::open::Engine;
use stasis_engine::reap::Reaped;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(super) enum LeaseCommand {
    /// Become the owner and print the token that `renew` and `release` need
    ///
    /// Exits with 4 and prints the holder when somebody else owns it.
    Acquire {
        #[command(flatten)]
        claim: ClaimArgs,
    },
    /// Prolong a lease
    ///
    /// Exits with 5 when the lease is lost: stop working on the profile then.
    Renew {
        /// <tenant>/<profile>@<chrome-major>
        #[arg(value_parser = lineage)]
        subject: Lineage,
        /// What `acquire` printed
        #[arg(long)]
        token: Fence,
        /// For how long from now, such as 90s, 5m or 1h30m; at most 7d [default: the tenant's policy]
        #[arg(long, value_parser = duration::positive)]
        ttl: Option<Duration>,
    },
    /// Give a lease back
    Release {
        /// <tenant>/<profile>@<chrome-major>
        #[arg(value_parser = lineage)]
        subject: Lineage,
        /// What `acquire` printed
        #[arg(long)]
        token: Fence,
    },
    /// Show who holds the lock
    Show {
        /// <tenant>/<profile>@<chrome-major>
        #[arg(value_parser = lineage)]
        subject: Lineage,
    },
    /// Force-release a lease (fences its holder)
    ///
    /// Every writer is fenced before the lock is freed, so the holder cannot publish any more.
    ForceUnlock {
        /// <tenant>/<profile>@<chrome-major>
        #[arg(value_parser = lineage)]
        subject: Lineage,
        /// Really do it
        #[arg(long)]
        confirm: bool,
        /// Why, for the events log
        #[arg(long, value_name = "TEXT", value_parser = named)]
        reason: Label,
        /// Only if the lock still belongs to this lease, as `<epoch>.<op_id>` from `show --json`
        #[arg(long, value_name = "TOKEN")]
        seen: Option<Fence>,
    },
    /// Free locks whose holders are presumed dead: one, or all
    Reap {
        /// <tenant>/<profile>@<chrome-major>
        #[arg(value_parser = lineage)]
        subject: Option<Lineage>,
        /// How long after its expiry, such as 60s [default: each tenant's policy]
        #[arg(long, value_parser = duration::parse)]
        grace: Option<Duration>,
    },
    /// Run a command for as long as the lease is ours
    ///
    /// Renews while CMD runs and releases when it ends; exits with CMD's code. CMD runs in a process group of its own;
    /// what it leaves running there is stopped before the lease is given back. When the lease is lost, or is about to run
    /// out, the whole group is stopped and the exit code is 105. Other failures of ours exit with 100 + their code.
    /// A signal is passed on to CMD, a second one stops the group for good. CMD has no terminal to read from; it finds
    /// STASIS_LEASE_SUBJECT, STASIS_LEASE_TOKEN and STASIS_LEASE_RUN_ID in its environment. With --json the last line of
    /// standard output is the report. Killing stasis itself with SIGKILL leaves CMD running; what it publishes then is
    /// refused as soon as somebody else owns the lineage.
    Hold {
        #[command(flatten)]
        claim: ClaimArgs,
        /// How often to renew, such as 60s; at least twice per lease [default: the tenant's policy, at least thrice per lease]
        #[arg(long, value_parser = duration::positive)]
        renew: Option<Duration>,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
}

impl LeaseCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<ExitCode> {
        let engine = match self {
            Self::Acquire { .. } => context.writable_engine().await?,
            Self::Hold {
                claim,
                renew,
                command,
            } => return hold::run(context, claim, renew, command).await,
            _ => context.engine().await?,
        };
        match self {
            Self::Acquire { claim } => acquire(context, &engine, claim).await?,
            Self::Renew {
                subject,
                token,
                ttl,
            } => {
                let renewed = engine.leases().renew(&subject, token, ttl).await?;
                context.output.warn(&renewed.warnings);
                context
                    .output
                    .result(&renewed, |r| format!("held until {}", r.lock.expires_at))?;
            }
            Self::Release { subject, token } => {
                let released = engine.leases().release(&subject, token).await?;
                context.output.warn(&released.warnings);
                context
                    .output
                    .result(&released, |_| "released".to_owned())?;
            }
            Self::Show { subject } => {
                let shown = engine.leases().show(&subject).await?;
                context.output.warn(&shown.warnings);
                context.output.result(&shown, show)?;
            }
            Self::ForceUnlock {
                subject,
                confirm,
                reason,
                seen,
            } => {
                let cmd = ForceUnlock {
                    lineage: subject,
                    seen,
                    reason,
                    actor: operator(),
                };
                force_unlock(context, &engine, cmd, confirm).await?;
            }
            Self::Reap { subject, grace } => {
                return reap(context, &engine, subject.as_ref(), grace).await;
            }
            Self::Hold { .. } => unreachable!("holding opens the store itself"),
        }
        Ok(Exit::Done.into())
    }
}

pub(super) fn operator() -> Label {
    "operator".parse().expect("a constant that is a label")
}

async fn acquire(context: &CliContext, engine: &Engine, claim: ClaimArgs) -> anyhow::Result<()> {
    let wait = claim.wait(context)?;
    let acquire = claim.acquire(context, engine)?;
    let acquired = engine
        .leases()
        .acquire_within(acquire, wait.as_ref())
        .await?;
    context.output.warn(&acquired.warnings);
    let base = acquired
        .base_sha256
        .map_or_else(|| "no snapshot yet".to_owned(), |base| base.prefix());
    let printed = context
        .output
        .result(&acquired, |acquired| acquired.token.clone());
    if let Err(lost) = printed {
        // A lease whose token nobody has is of no use to anybody.
        let returned = engine
            .leases()
            .release(&acquired.subject, acquired.lease.fence)
            .await
            .is_ok();
        let said = if returned {
            "the lease was given back"
        } else {
            "the lease could not be given back and expires"
        };
        return Err(lost.context(format!("the token could not be printed, so {said}")));
    }
    context.output.say(&format!(
        "{} is owned by run `{}` for {:?}; base: {base}",
        acquired.subject,
        acquired.holder.run_id,
        Duration::from_millis(acquired.ttl_ms)
    ));
    Ok(())
}

fn show(shown: &Shown) -> String {
    let left = shown.expires_in_ms / 1000;
    let state = match shown.lock.state {
        LockState::Held if shown.live => format!("held, expires in {left} s"),
        LockState::Held => format!(
            "expired {} s ago and not yet taken by anybody",
            left.unsigned_abs()
        ),
        LockState::Free => "free".to_owned(),
        LockState::Forced => "taken by an operator; free for the next one who asks".to_owned(),
    };
    format!("{}: {state}\n{}", shown.subject, holder_lines(&shown.lock))
}

pub(super) async fn force_unlock(
    context: &CliContext,
    engine: &Engine,
    cmd: ForceUnlock,
    confirm: bool,
) -> anyhow::Result<()> {
    if !confirm {
        let shown = engine.leases().show(&cmd.lineage).await?;
        context.output.say(&show(&shown));
        bail!("nothing was changed: say --confirm to throw this holder out");
    }
    let unlocked = engine.leases().force_unlock(cmd).await?;
    context.output.warn(&unlocked.warnings);
    context.output.result(&unlocked, |unlocked| {
        format!(
            "{}: run `{}` on `{}` was thrown out; every lease below epoch {} is fenced",
            unlocked.subject, unlocked.evicted.run_id, unlocked.evicted.host, unlocked.epoch
        )
    })
}

pub(super) async fn reap(
    context: &CliContext,
    engine: &Engine,
    subject: Option<&Lineage>,
    grace: Option<Duration>,
) -> anyhow::Result<ExitCode> {
    report_reaped(context, &engine.leases().reap(subject, grace).await?)
}

/// Reports what a reap of the locks did.
pub(super) fn report_reaped(context: &CliContext, reaped: &Reaped) -> anyhow::Result<ExitCode> {
    context.output.warn(&reaped.warnings);
    context.output.result(reaped, reaped_text)?;
    let corrupt = reaped.left_alone.iter().any(|lock| lock.corrupt);
    let failed = if reaped.left_alone.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    };
    Ok(if corrupt { Exit::Corrupt } else { failed }.into())
}

fn reaped_text(reaped: &Reaped) -> String {
    let summary = format!(
        "{} locks: {} evicted, {} fresh or free, {} left alone",
        reaped.scanned,
        reaped.evicted.len(),
        reaped.fresh,
        reaped.left_alone.len()
    );
    let evicted = reaped.evicted.iter().map(|evicted| {
        vec![
            evicted.subject.to_string(),
            "evicted".to_owned(),
            format!(
                "holder_run_id {} on {}",
                evicted.holder.run_id, evicted.holder.host
            ),
        ]
    });
    let left = reaped.left_alone.iter().map(|lock| {
        vec![
            lock.subject.to_string(),
            "left alone".to_owned(),
            lock.reason.clone(),
        ]
    });
    let rows: Vec<Vec<String>> = evicted.chain(left).collect();
    if rows.is_empty() {
        summary
    } else {
        format!(
            "{}\n{summary}",
            table(&["SUBJECT", "OUTCOME", "DETAIL"], rows)
        )
    }
}
