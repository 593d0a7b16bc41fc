//! The one directory that `stasis ui` shows: its timeline, what differs, and going back. A service for many shows none.

use super::snapshots::TreePath;
use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::operations::Answered;
use crate::http::parameters::{Flag, MomentName, PageSize, page};
use crate::http::problem::{Problem, ProblemCode};
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::kind::directory::{
    ChangedInPlace, DirDiff, DirPlace, Directory, InPlace, Timeline, TimelineQuery,
};
use stasis_engine::kind::project::Project;
use stasis_engine::kind::workspace::HostEnv;
use stasis_engine::model::format::token::TokenScope;
use std::path::PathBuf;

/// A directory of this host that is shown to whoever works in it.
#[derive(Clone, Debug)]
pub(crate) struct OwnDirectory {
    /// Where it lies.
    pub(crate) dir: PathBuf,
    /// What this host knows of it.
    pub(crate) host: HostEnv,
    /// Its snapshots, if there is a store.
    pub(crate) project: Option<Project>,
}

impl OwnDirectory {
    /// What people call it: its last name.
    pub(in crate::http) fn name(&self) -> String {
        let name = self.dir.file_name().unwrap_or(self.dir.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// As it is now: somebody may have protected it a moment ago.
    async fn open(&self) -> Result<Directory, Problem> {
        let place = DirPlace::find(Some(&self.dir), &self.host).await?;
        Ok(Directory::new(self.project.clone(), place.workspace).with_lost(place.lost))
    }
}

fn shown(call: &Call) -> Result<&OwnDirectory, Problem> {
    let none = "this service shows no directory of its host; `stasis ui DIR` shows one";
    let own = call.directory.as_deref();
    own.ok_or_else(|| Problem::new(ProblemCode::NotFound, none))
}

/// `GET /v1/directory`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowDirectory {
    /// How many items there are at most, the newest
    #[serde(default)]
    limit: PageSize,
}

/// A directory, and what happened to it.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct ShownDirectory {
    /// What it is called.
    name: String,
    /// Where it lies.
    path: String,
    /// Whether checkpoints of it are made.
    is_protected: bool,
    #[serde(flatten)]
    timeline: Timeline,
}

impl Endpoint for ShowDirectory {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/directory";
    const NAME: &'static str = "show_directory";
    const SUMMARY: &'static str =
        "Show the timeline of the directory that `stasis ui` was started for";
    const ACCESS: Access = Access::HostToken(TokenScope::Read);
    type Body = NoBody;
    type Answer = ShownDirectory;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<ShownDirectory>, Problem> {
        let own = shown(call)?;
        let directory = own.open().await?;
        let query = TimelineQuery {
            most: self.limit.rows(),
            changes: None,
            published_only: false,
        };
        Ok(ShownDirectory {
            name: own.name(),
            path: own.dir.display().to_string(),
            is_protected: directory.workspace().is_ok(),
            timeline: directory.timeline(query).await?,
        }
        .into())
    }
}

/// `GET /v1/directory/diff`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DiffDirectory {
    /// The older side: a snapshot or a checkpoint
    before: MomentName,
    /// The newer side [default: what is there now]
    #[serde(default)]
    after: Option<MomentName>,
    /// Only this entry and what is in it
    #[serde(default)]
    path: TreePath,
    /// With the text that differs in `path`
    #[serde(default)]
    patch: Flag,
    /// Where the page before this one ended: its `next_cursor`
    #[serde(default)]
    cursor: Option<String>,
    /// How many rows the page has at most
    #[serde(default)]
    limit: PageSize,
}

/// A page of what differs, by path.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct DirectoryDiffPage {
    #[serde(flatten)]
    diff: DirDiff,
    /// How many entries differ, on all pages.
    differing: u64,
    /// Where the next page begins; there is none where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl Endpoint for DiffDirectory {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/directory/diff";
    const NAME: &'static str = "diff_directory";
    const SUMMARY: &'static str = "Say what differs between two moments of the directory that `stasis ui` was started for, or between one and now";
    const ACCESS: Access = Access::HostToken(TokenScope::Read);
    type Body = NoBody;
    type Answer = DirectoryDiffPage;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<DirectoryDiffPage>, Problem> {
        let content = self.path.compared(self.patch)?;
        let directory = shown(call)?.open().await?;
        let before = directory.locate(&self.before.0).await?;
        let after = match &self.after {
            Some(after) => Some(directory.locate(&after.0).await?),
            None => None,
        };
        let within = &self.path.0;
        let diff = directory.diff_within(&before, after.as_ref(), content, within);
        let mut diff = Box::pin(diff).await?;
        let mut items = std::mem::take(&mut diff.items);
        let differing = items.len() as u64;
        items.sort_by(|one, other| one.path.cmp(&other.path));
        let cursor = self.cursor.as_deref();
        let (items, next_cursor) = page(items, cursor, self.limit, |one| &one.path);
        diff.items = items;
        Ok(DirectoryDiffPage {
            diff,
            differing,
            next_cursor,
        }
        .into())
    }
}

/// Whether it is done, or only shown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct InPlaceBody {
    /// The digest of the plan that is agreed to; without it nothing is changed, and the answer is the plan
    #[serde(default)]
    agreed: Option<String>,
    /// Of a restore: when the checkpoint was made that is meant (`at_ms`); another one that has its name by now is refused
    #[serde(default)]
    made_at_ms: Option<u64>,
}

async fn changed(
    call: &Call,
    directory: &Directory,
    what: InPlace,
    body: InPlaceBody,
) -> Result<Reply<ChangedInPlace>, Problem> {
    let changed = directory.change_in_place(&what, body.agreed, &call.progress);
    Ok(Box::pin(changed).await?.into())
}

/// `POST /v1/directory/snapshots/{snapshot}/restore`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RestoreDirectory {
    /// `latest`, a checkpoint (`cp-3`), a time (`@-2h`), an id or the beginning of one, a label
    snapshot: MomentName,
}

impl Endpoint for RestoreDirectory {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/directory/snapshots/{snapshot}/restore";
    const NAME: &'static str = "restore_directory";
    const SUMMARY: &'static str = "Go back to a moment of the directory that `stasis ui` was started for; what is there now can be brought back";
    const ACCESS: Access = Access::HostToken(TokenScope::Write);
    const ANSWERED: Answered = Answered::AsOperation;
    type Body = InPlaceBody;
    type Answer = ChangedInPlace;

    async fn serve(self, body: InPlaceBody, call: &Call) -> Result<Reply<ChangedInPlace>, Problem> {
        let directory = shown(call)?.open().await?;
        let of = directory.locate(&self.snapshot.0).await?;
        if let Some(at_ms) = body.made_at_ms {
            directory.ensure_made_at(&of, at_ms).await?;
        }
        changed(call, &directory, InPlace::Restore(of), body).await
    }
}

/// `POST /v1/directory/undo`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct UndoDirectory {}

impl Endpoint for UndoDirectory {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/directory/undo";
    const NAME: &'static str = "undo_directory";
    const SUMMARY: &'static str = "Take back the last restore, rewind, revert or undo of the directory that `stasis ui` was started for";
    const ACCESS: Access = Access::HostToken(TokenScope::Write);
    const ANSWERED: Answered = Answered::AsOperation;
    type Body = InPlaceBody;
    type Answer = ChangedInPlace;

    async fn serve(self, body: InPlaceBody, call: &Call) -> Result<Reply<ChangedInPlace>, Problem> {
        let directory = shown(call)?.open().await?;
        changed(call, &directory, InPlace::Undo, body).await
    }
}
