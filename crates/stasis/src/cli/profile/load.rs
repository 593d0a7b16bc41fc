//! `stasis profile load`

use super::metrics::MetricsArgs;
use super::who::{ProfileOwnerArgs, spawn};
use crate::cli::CliContext;
use crate::cli::byte_size::size;
use crate::cli::output::{printable, word};
use crate::cli::progress::{cancel_on_signals, watched};
use crate::profile_settings::ProfileSetting;
use crate::report::Exit;
use clap::{Args, ValueEnum};
use stasis_engine::kind::profile::{
    LoadOutcome, OnFailure, ProfileLoad, ProfileLoaded, UpgradeWish, Wanted, browser_major,
};
use stasis_engine::model::id::{ChromeMajor, Lineage, ProfileRef};
use stasis_engine::open::Engine;
use stasis_engine::restore::Placement;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LoadFallback {
    /// Go on with a fresh profile, and say so
    Fresh,
    /// Fail, and touch nothing
    Refuse,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LoadPolicy {
    /// Refuse snapshots that were taken of a running browser
    ColdOnly,
}

/// Which Chrome a profile is for, and what to do when it cannot be loaded.
#[derive(Clone, Debug, Args)]
pub(super) struct LoadArgs {
    /// The major version of the browser that will run on it
    #[arg(long, value_name = "N")]
    chrome_major: Option<ChromeMajor>,
    /// What to do when there is a snapshot that cannot be loaded [default: $STASIS_ON_FAILURE, then `profile.on_failure`
    /// in the configuration file; else an older one when it is damaged, else fresh, but refuse while the store cannot be
    /// reached]
    #[arg(long, value_name = "WHAT")]
    on_failure: Option<LoadFallback>,
    /// Do not carry the snapshot of an older Chrome to this one, whatever the tenant's policy says
    #[arg(long, conflicts_with = "from_major")]
    no_upgrade: bool,
    /// Carry the snapshot of this older Chrome, also when there is one of this Chrome
    #[arg(long, value_name = "N")]
    from_major: Option<ChromeMajor>,
    /// Stricter than the tenant's policy
    #[arg(long, value_name = "POLICY")]
    policy: Option<LoadPolicy>,
}

impl LoadArgs {
    /// The major, if somebody said it.
    pub(super) fn major(&self, subject: &ProfileRef) -> Option<ChromeMajor> {
        subject.major.or(self.chrome_major)
    }

    /// The lineage that is meant; `browser` is asked when nobody says the major.
    pub(super) async fn lineage(
        &self,
        subject: &ProfileRef,
        browser: Option<&PathBuf>,
    ) -> anyhow::Result<Lineage> {
        let said = subject.major.or(self.chrome_major);
        if let (Some(one), Some(other)) = (subject.major, self.chrome_major) {
            anyhow::ensure!(
                one == other,
                "`{subject}` and --chrome-major {other} contradict each other"
            );
        }
        let major = match (said, browser) {
            (Some(major), Some(browser)) => {
                // What cannot be asked cannot contradict either.
                if let Ok(found) = browser_major(browser).await
                    && found != major
                {
                    anyhow::bail!(
                        "`{}` is Chrome {found}, and the profile is for Chrome {major}: leave out the major, or name another browser",
                        browser.display()
                    );
                }
                major
            }
            (Some(major), None) => major,
            (None, Some(browser)) => browser_major(browser).await?,
            (None, None) => anyhow::bail!(
                "which Chrome is `{subject}` for? write {subject}@MAJOR, --chrome-major MAJOR or --browser PATH"
            ),
        };
        if let Some(from) = self.from_major.filter(|from| *from >= major) {
            anyhow::bail!("--from-major {from} is not older than Chrome {major}");
        }
        Ok(subject.lineage(major))
    }

    pub(super) fn command(
        &self,
        context: &CliContext,
        lineage: Lineage,
        dir: PathBuf,
        who: &ProfileOwnerArgs,
    ) -> anyhow::Result<ProfileLoad> {
        let parse = |text: &str| LoadFallback::from_str(text, false);
        let on_failure =
            context.profile_setting(ProfileSetting::OnFailure, self.on_failure, parse)?;
        Ok(ProfileLoad {
            actor: lineage.to_string().parse().unwrap_or_default(),
            lineage,
            dir,
            placement: Placement::Replace,
            exactly: None,
            on_failure: on_failure.map(|failure| match failure {
                LoadFallback::Fresh => OnFailure::Fresh,
                LoadFallback::Refuse => OnFailure::Refuse,
            }),
            upgrade: match (self.from_major, self.no_upgrade) {
                (Some(major), _) => UpgradeWish::From(major),
                (None, true) => UpgradeWish::Stay,
                (None, false) => UpgradeWish::ByPolicy,
            },
            cold_only: self.policy.is_some(),
            region: who.region(context)?,
            spawn: spawn()?,
            progress: Arc::default(),
            cancel: Arc::default(),
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ProfileLoadArgs {
    /// <tenant>/<profile>[@<chrome-major>]
    subject: ProfileRef,
    /// The user data directory that the profile becomes; what is there is kept beside it
    #[arg(long)]
    dir: PathBuf,
    /// The snapshot: the beginning of its sha256, `latest`, or `latest~2` for the second before that. It alone is loaded,
    /// or nothing; a save of it diverges while another one is active [default: the active one]
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["on_failure", "no_upgrade", "from_major"])]
    sha: Option<Wanted>,
    /// The browser that will run on it; asked for its version [default: $STASIS_BROWSER, then `profile.browser` in the
    /// configuration file]
    #[arg(long, value_name = "COMMAND", conflicts_with = "chrome_major")]
    browser: Option<PathBuf>,
    #[command(flatten)]
    loading: LoadArgs,
    #[command(flatten)]
    who: ProfileOwnerArgs,
}

impl ProfileLoadArgs {
    pub(super) async fn run(
        self,
        context: &CliContext,
        metrics: &MetricsArgs,
    ) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let lineage = self.lineage(context, &engine).await?;
        let dir = std::path::absolute(&self.dir)?;
        let mut command = self.loading.command(context, lineage, dir, &self.who)?;
        command.exactly = self.sha;
        command.actor = self.who.holder(context, &engine)?.run_id;
        command.cancel = cancel_on_signals()?;
        let progress = command.progress.clone();
        let work = Box::pin(engine.profiles().load(command));
        let loaded = watched(context.output, "loading", progress, work).await;
        metrics.add(context, |file| file.loaded(&loaded)).await?;
        let loaded = loaded?;
        context.output.warn(&loaded.warnings);
        let whole = |loaded: &ProfileLoaded| text(loaded) + &other_active(loaded);
        context.output.result(&loaded, whole)?;
        Ok(exit(&loaded))
    }

    /// The lineage that is meant: of the browser's major, or of the only one that there is, if a snapshot of it is named.
    async fn lineage(&self, context: &CliContext, engine: &Engine) -> anyhow::Result<Lineage> {
        let browser = browser_setting(context, self.browser.clone())?;
        let is_said = self.loading.major(&self.subject).is_some() || browser.is_some();
        if self.sha.is_some() && !is_said {
            return Ok(engine.profiles().one_lineage(&self.subject).await?);
        }
        self.loading.lineage(&self.subject, browser.as_ref()).await
    }
}

/// The browser that is asked for its major, if a flag or a setting names one.
pub(in crate::cli) fn browser_setting(
    context: &CliContext,
    flag: Option<PathBuf>,
) -> anyhow::Result<Option<PathBuf>> {
    context.profile_setting(ProfileSetting::Browser, flag, |text| Ok(text.into()))
}

/// What a load ends with.
pub(super) fn exit(loaded: &ProfileLoaded) -> Exit {
    match loaded.outcome {
        LoadOutcome::FreshFallback => Exit::Fresh,
        LoadOutcome::Predecessor => Exit::Incomplete,
        LoadOutcome::Success | LoadOutcome::Upgraded | LoadOutcome::NoSnapshot => Exit::Done,
    }
}

pub(super) fn text(loaded: &ProfileLoaded) -> String {
    let dir = printable(&loaded.dir);
    let kept = loaded.kept.as_ref();
    let kept = kept.map(|kept| format!("\nwhat was there before is `{}`", printable(kept)));
    let text = match (loaded.outcome, &loaded.sha256) {
        (LoadOutcome::Success, Some(sha)) => format!(
            "restored {} from {}: {} files, {}; fetched {} of {}; {} databases sound; {} ms",
            dir,
            sha.prefix(),
            loaded.files,
            size(loaded.bytes),
            size(loaded.bytes_fetched),
            size(loaded.archive_bytes),
            loaded.databases,
            loaded.download_ms + loaded.extract_ms,
        ),
        (LoadOutcome::Upgraded, Some(sha)) => format!(
            "carried {} of Chrome {} to Chrome {} in {dir}: {} files, {}; {} databases sound; \
             the browser migrates it, and a save publishes it as `{}`",
            sha.prefix(),
            loaded
                .upgraded_from
                .map_or_else(String::new, |from| from.chrome_major.to_string()),
            loaded.subject.major,
            loaded.files,
            size(loaded.bytes),
            loaded.databases,
            loaded.subject,
        ),
        (LoadOutcome::Predecessor, Some(sha)) => format!(
            "OLDER snapshot {} in {dir}: the active one is damaged ({})\n  because: {}\n  \
             hint: `stasis profile rollback {} --sha {} --confirm` makes it the active one; until then saves diverge",
            sha.prefix(),
            loaded
                .reason
                .map(|reason| word(&reason))
                .unwrap_or_default(),
            printable(loaded.detail.as_deref().unwrap_or_default()),
            loaded.subject,
            sha.prefix(),
        ),
        (LoadOutcome::FreshFallback, _) => format!(
            "FRESH profile in {dir}, not restored: {}\n  because: {}",
            loaded
                .reason
                .map(|reason| word(&reason))
                .unwrap_or_default(),
            printable(loaded.detail.as_deref().unwrap_or_default()),
        ),
        _ => format!(
            "fresh profile in {dir}: `{}` has no snapshot yet",
            loaded.subject
        ),
    };
    text + &kept.unwrap_or_default()
}

/// That the directory is not the active snapshot, if somebody asked for another one.
fn other_active(loaded: &ProfileLoaded) -> String {
    let (Some(active), Some(sha)) = (loaded.active_sha256, loaded.sha256) else {
        return String::new();
    };
    format!(
        "\n  {} stays the active snapshot of {}; a save of this directory is stored beside it (diverged)\n  \
         hint: `stasis profile rollback {} --sha {} --confirm` makes the loaded one active",
        active.prefix(),
        loaded.subject,
        loaded.subject,
        sha.prefix(),
    )
}
