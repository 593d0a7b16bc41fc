//! `stasis mount`

use super::{CliContext, byte_size, project, system_clock};
use crate::cli::output::printable;
use crate::mcp::Stop;
use crate::mount::{Access, MountPoint, MountSession, MountedSubject, MountedTree, WhatIsMounted};
use crate::report::Exit;
use anyhow::{Context as _, bail};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::browser::{BrowsedSubject, Browser, BrowserSettings};
use stasis_engine::kind::workspace::Workspace;
use stasis_engine::model::id::TenantId;
use stasis_engine::model::subject_ref::{self, SubjectRef};
use stasis_engine::open::StoreLocation;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often somebody looks whether it was unmounted.
const TICK: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct MountArgs {
    /// What to show: a directory, `dir:NAME` or `profile:TENANT/PROFILE` [default: the directory you are in]; and last an empty directory
    /// to mount it on
    #[arg(value_name = "SUBJECT|MOUNTPOINT", num_args = 1..=2, required = true)]
    words: Vec<OsString>,
    /// Show everything in the store
    #[arg(long)]
    all: bool,
    /// Whose directories, and with --all whose profiles [default: those of `default`; profiles of every tenant]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<TenantId>,
    /// How much unpacked content is kept in memory
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = byte_size::positive)]
    cache: u64,
    /// Let other users look too, as the modes of the files allow
    #[arg(long)]
    allow_other: bool,
}

/// What was mounted where.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MountedAt {
    /// Of what; everything in the store if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    store: String,
    mountpoint: String,
}

/// What is mounted, and what must not lie around the mount point.
struct Chosen {
    what: WhatIsMounted,
    at: MountedAt,
    outside: Vec<(PathBuf, &'static str)>,
}

impl Chosen {
    fn new(what: WhatIsMounted, subject: Option<String>, location: &StoreLocation) -> Self {
        let mut outside = Vec::new();
        if let StoreLocation::File(root) = location
            && let Ok(root) = root.canonicalize()
        {
            outside.push((root, "the store"));
        }
        Self {
            what,
            at: MountedAt {
                subject,
                store: location.to_string(),
                mountpoint: String::new(),
            },
            outside,
        }
    }
}

impl MountArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let (typed, words) = self.words.split_last().context("name a mount point")?;
        let mut stop = Stop::on_signals()?;
        let mut chosen = self.chosen(context, words).await?;
        let point = MountPoint::prepare(Path::new(typed), &chosen.outside)?;
        let shown = point.path().display().to_string();
        if point.was_dead {
            let text = format!("cleared {shown}, where a mount was left whose process is gone");
            context.output.say(&text);
        }
        let browser = Browser::new(BrowserSettings {
            cache_bytes: self.cache,
            ..BrowserSettings::default()
        });
        let output = context.output;
        let warn = move |text: &str| {
            let text = printable(text);
            // No result has them: whoever asked for JSON finds them in the log.
            if output.as_json {
                tracing::warn!("{text}");
            } else {
                output.say(&format!("warning: {text}"));
            }
        };
        let tree = MountedTree::new(browser, chosen.what, system_clock(), Box::new(warn));
        let access = if self.allow_other {
            Access::Everybody
        } else {
            Access::Owner
        };
        let session = MountSession::begin(tree, point, access)?;
        chosen.at.mountpoint.clone_from(&shown);
        output.result(&chosen.at, mounted_text)?;
        while !session.has_ended() {
            tokio::select! {
                () = stop.asked() => break,
                () = tokio::time::sleep(TICK) => {}
            }
        }
        session.end().await?;
        output.say(&format!("unmounted {}", printable(&shown)));
        Ok(Exit::Done)
    }

    async fn chosen(&self, context: &CliContext, words: &[OsString]) -> anyhow::Result<Chosen> {
        let default = TenantId::default();
        let tenant = self.tenant.clone().unwrap_or(default);
        if self.all {
            if !words.is_empty() {
                bail!("--all shows every subject of the store: name none, or leave it out");
            }
            let engine = context.engine().await?;
            let location = engine.location().clone();
            let what = WhatIsMounted::Store {
                engine: Box::new(engine),
                directories_of: tenant,
                profiles_of: self.tenant.clone(),
            };
            return Ok(Chosen::new(what, None, &location));
        }
        let is_dir = |path: &Path| path.is_dir();
        let dir = match subject_ref::read(words, 0, is_dir)?.subject {
            SubjectRef::Here => PathBuf::from("."),
            SubjectRef::Path(path) => path,
            SubjectRef::Dir(name) => PathBuf::from(name),
            SubjectRef::Profile(profile) => {
                let engine = context.engine().await?;
                let lineage = engine.profiles().one_lineage(&profile).await?;
                let (label, location) = (format!("profile:{lineage}"), engine.location().clone());
                let snapshots = BrowsedSubject::Profile(Box::new(engine), lineage);
                let subject = subject(&label, snapshots, None);
                return Ok(Chosen::new(subject, Some(label), &location));
            }
            _ => bail!("this is no subject that can be mounted"),
        };
        directory(context, &dir, &tenant).await
    }
}

fn subject(
    label: &str,
    snapshots: BrowsedSubject,
    checkpoints: Option<BrowsedSubject>,
) -> WhatIsMounted {
    WhatIsMounted::One(MountedSubject {
        label: label.to_owned(),
        snapshots,
        checkpoints,
    })
}

async fn directory(context: &CliContext, dir: &Path, tenant: &TenantId) -> anyhow::Result<Chosen> {
    let project = project::named_of(context, dir, tenant).await?;
    // Whoever names a directory that was never saved is told so, and does not look at nothing.
    project.list().await?;
    let home = project.home();
    let label = format!("dir:{}", home.id);
    let place = home.dir.canonicalize().ok();
    let mut checkpoints = None;
    if let (Some(place), Ok(host)) = (&place, context.environment.host_env())
        && let Ok(workspace) = Workspace::find(place, &host).await
        && workspace.directory() == place
    {
        checkpoints = Some(BrowsedSubject::Checkpoints(workspace));
    }
    let what = subject(&label, BrowsedSubject::from(&project), checkpoints);
    let mut chosen = Chosen::new(what, Some(label), project.location());
    chosen
        .outside
        .extend(place.map(|place| (place, "the directory whose snapshots are shown")));
    Ok(chosen)
}

fn mounted_text(at: &MountedAt) -> String {
    let what = at.subject.as_deref().unwrap_or(&at.store);
    let point = &at.mountpoint;
    let look = match at.subject {
        Some(_) => "latest/ and by-time/",
        None => "dir/ and profile/",
    };
    format!(
        "Mounted {what} on {point}: look into {look}. End with Ctrl-C or: fusermount3 -u {point}"
    )
}
