//! `--wait`: how long a command waits for whoever holds a profile.

use super::{CliContext, duration};
use crate::profile_settings::ProfileSetting;
use clap::Args;
use stasis_engine::lease::LeaseWait;
use stasis_engine::model::format::lease::Lock;
use std::fmt::Display;
use std::time::Duration;

/// How long to wait.
#[derive(Clone, Debug, Args)]
pub(super) struct WaitArgs {
    /// Wait for whoever holds the profile, at most this long, as in --wait=10m; 1h when no time is given, 0s not at all
    /// [default: $STASIS_WAIT, then `profile.wait` in the configuration file, else not at all]
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1h",
        value_parser = duration::parse
    )]
    wait: Option<Duration>,
}

impl WaitArgs {
    /// What the engine needs to know; whom we wait for is said once.
    pub(super) fn lease_wait(
        &self,
        context: &CliContext,
        subject: impl Display,
    ) -> anyhow::Result<Option<LeaseWait>> {
        let wait = context.profile_setting(ProfileSetting::Wait, self.wait, duration::parse)?;
        let Some(at_most) = wait.filter(|wait| !wait.is_zero()) else {
            return Ok(None);
        };
        let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let (output, subject) = (context.output, subject.to_string());
        tokio::spawn(async move {
            if let Some(lock) = heard.recv().await {
                output.say(&text(&subject, at_most, &lock));
            }
        });
        Ok(Some(LeaseWait {
            at_most,
            held_by: Some(said),
        }))
    }
}

fn text(subject: &str, at_most: Duration, lock: &Lock) -> String {
    format!(
        "waiting for {subject}, up to {}: held by run `{}` on `{}` until {}",
        duration::text(at_most),
        lock.holder.run_id,
        lock.holder.host,
        lock.expires_at,
    )
}
