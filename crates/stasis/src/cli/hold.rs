//! `stasis lease hold …`: how a command that runs under a lease ends.

use super::CliContext;
use super::claim::ClaimArgs;
use crate::report::Exit;
use stasis_engine::error::{Error, GroupError};
use stasis_engine::hold::{HoldLease, HoldResult, LeaseLost, Signal};
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Runs a command under a lease and answers as a shell would.
pub(super) async fn run(
    context: &CliContext,
    claim: ClaimArgs,
    renew_every: Option<Duration>,
    command: Vec<OsString>,
) -> anyhow::Result<ExitCode> {
    let held = match run_held(context, claim, renew_every, command).await {
        Ok(held) => held,
        Err(error) => {
            let exit = crate::report::print(&error, context.output.as_json);
            return Ok(ExitCode::from(start_failure(&error).unwrap_or(
                match exit {
                    Exit::Cancelled => Exit::Cancelled as u8,
                    exit => 100 + exit as u8,
                },
            )));
        }
    };
    context.output.warn(&held.warnings);
    // On one line, because the command's own output stands before it; people see that output.
    context.output.result_line(&held, |_| String::new())?;
    Ok(ExitCode::from(hold_exit(context, &held)))
}

async fn run_held(
    context: &CliContext,
    claim: ClaimArgs,
    renew_every: Option<Duration>,
    command: Vec<OsString>,
) -> anyhow::Result<HoldResult> {
    let engine = context.writable_engine().await?;
    let wait = claim.wait(context)?;
    let acquire = claim.acquire(context, &engine)?;
    let signals = signals()?;
    Ok(engine
        .leases()
        .hold(HoldLease {
            acquire,
            wait,
            renew_every,
            command,
            signals,
        })
        .await?)
}

/// What a shell answers for a command that cannot be started.
pub(super) fn start_failure(error: &anyhow::Error) -> Option<u8> {
    let Some(Error::Group(GroupError::Start { source, .. })) = error.downcast_ref() else {
        return None;
    };
    Some(if source.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    })
}

fn hold_exit(context: &CliContext, held: &HoldResult) -> u8 {
    if let Some(lost) = &held.lost {
        let how = match lost {
            LeaseLost::TakenAway { detail } => format!("it was taken away: {detail}"),
            LeaseLost::RanOut { detail } => format!("it ran out: {detail}"),
        };
        context.output.insist(&format!(
            "error: the lease of `{}` is lost, so the command was stopped\n  because: {how}",
            held.subject
        ));
        return 100 + Exit::LockLost as u8;
    }
    if !held.released {
        context
            .output
            .say("warning: the lease was not given back; others wait until it expires");
    }
    u8::try_from(held.exit_code).unwrap_or(1)
}

/// The signals that are passed on to the command instead of ending us.
pub(super) fn signals() -> anyhow::Result<mpsc::UnboundedReceiver<Signal>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let passed_on = [
        (SignalKind::interrupt(), Signal::INT),
        (SignalKind::terminate(), Signal::TERM),
        (SignalKind::hangup(), Signal::HUP),
        (SignalKind::quit(), Signal::QUIT),
    ];
    for (kind, passed) in passed_on {
        let (mut incoming, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move {
            while incoming.recv().await.is_some() && sender.send(passed).is_ok() {}
        });
    }
    Ok(receiver)
}
