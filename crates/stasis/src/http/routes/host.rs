//! Directories of the server's host, beneath the roots that it was given: saved from there, and snapshots written there.
//!
//! What is there is never replaced: that is done by somebody on the host.

use super::snapshots::subject;
use crate::http::endpoint::{Access, Call, Endpoint, Reply};
use crate::http::operations::Answered;
use crate::http::parameters::{SnapshotName, SubjectName};
use crate::http::private::scrubbed;
use crate::http::problem::{Problem, ProblemCode};
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::host_roots::HostPlace;
use stasis_engine::kind::project::{MESSAGE_LABEL, ProjectSave, ProjectSaved};
use stasis_engine::kind::workspace::RunMode;
use stasis_engine::model::format::manifest::SaveReason;
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::{Label, SnapshotId};
use stasis_engine::save::LostDatabase;
use stasis_engine::stored::{RestoreStored, StoredRestored};
use stasis_engine::subjects::SubjectKind;
use std::collections::BTreeMap;

/// The place that a path names, beneath a root; whatever else is on the host, every other path is answered alike.
async fn place(call: &Call, path: &str) -> Result<HostPlace, Problem> {
    let found = call.roots.place(path).await;
    found.map_err(|why| Problem::new(ProblemCode::Forbidden, why.to_string()))
}

/// `POST /v1/subjects/{kind}/{id}/save`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct SaveSubjectHere {
    kind: SubjectKind,
    id: SubjectName,
}

/// Which directory is saved, and what the snapshot is called.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct SaveBody {
    /// The directory: an absolute path beneath a root of the server
    path: String,
    /// What the snapshot is, in a few words
    #[serde(default)]
    message: Option<Label>,
    /// Labels, by their keys
    #[serde(default)]
    label: BTreeMap<String, Label>,
    /// Saves although suspiciously little is left of what the last snapshot had
    #[serde(default)]
    accept_shrink: bool,
}

impl SaveBody {
    fn labels(self) -> Result<BTreeMap<String, Label>, Problem> {
        let mut labels = self.label;
        if labels.keys().any(|key| key.is_empty() || key.contains('=')) {
            let said = "the body: the key of a label has at least one character, and no `=`";
            return Err(Problem::parameters(&said));
        }
        labels.extend(self.message.map(|text| (MESSAGE_LABEL.to_owned(), text)));
        Ok(labels)
    }
}

/// A directory that was saved.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct DirectorySaved {
    /// Which subject it is: what a first save called it is told here.
    subject: String,
    /// Its snapshot.
    snapshot: SnapshotId,
    /// Whether that was made now; otherwise the directory was this one already.
    published: bool,
    /// Whether `latest` means it; not if a database is gone, empty or damaged since the last one.
    is_latest: bool,
    /// Regular files.
    files: u64,
    /// The length of all files.
    bytes: u64,
    /// Bytes that are new, as they are stored.
    bytes_stored: u64,
    /// Entries that could not be read, or changed while they were.
    left_out: u64,
    /// Databases of the snapshot before that are not in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost_databases: Vec<LostDatabase>,
    /// Databases that no consistent copy was made of: where in the directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_consistent: Vec<String>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// How long it took.
    elapsed_ms: u64,
}

impl From<ProjectSaved> for DirectorySaved {
    fn from(done: ProjectSaved) -> Self {
        let saved = done.saved;
        let not_consistent = saved.not_consistent.into_iter();
        let warnings = done.warnings.iter().map(ToString::to_string);
        Self {
            subject: format!("dir:{}", done.project),
            snapshot: saved.snapshot_id,
            published: saved.published,
            is_latest: saved.is_latest,
            files: saved.files,
            bytes: saved.bytes,
            bytes_stored: saved.bytes_stored,
            left_out: saved.left_out,
            lost_databases: saved.lost_databases,
            not_consistent: not_consistent.map(|one| one.path).collect(),
            warnings: warnings.map(|one| scrubbed(&one)).collect(),
            elapsed_ms: saved.elapsed_ms,
        }
    }
}

impl Endpoint for SaveSubjectHere {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/save";
    const NAME: &'static str = "save_subject";
    const SUMMARY: &'static str = "Save a directory of the server's host, beneath one of its roots";
    const ACCESS: Access = Access::HostToken(TokenScope::Write);
    const ANSWERED: Answered = Answered::AsOperation;
    type Body = SaveBody;
    type Answer = DirectorySaved;

    async fn serve(self, body: SaveBody, call: &Call) -> Result<Reply<DirectorySaved>, Problem> {
        let elsewhere = match self.kind {
            SubjectKind::Dir => None,
            SubjectKind::Session => {
                Some("a session is saved by `POST /v1/sessions/{id}/sleep`, or on its host")
            }
            SubjectKind::Profile => Some("a profile is saved by the run that has its lease"),
            SubjectKind::Container => Some("a container is saved where its engine is"),
        };
        if let Some(said) = elsewhere {
            return Err(Problem::new(ProblemCode::NotFound, said));
        }
        let (place, tenant) = (place(call, &body.path).await?, call.tenant()?);
        let host = call.looking.project.clone();
        let found = call
            .engine
            .directory_at(&tenant, self.id.as_str(), &place, host);
        let project = found.await?;
        let command = ProjectSave {
            allow_shrink: body.accept_shrink,
            labels: body.labels()?,
            through: Some(place),
            progress: call.progress.clone(),
            ..ProjectSave::new(SaveReason::Manual)
        };
        let saved = Box::pin(project.save(command)).await?;
        Ok(DirectorySaved::from(saved).into())
    }
}

/// `POST /v1/subjects/{kind}/{id}/snapshots/{snapshot}/restore`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RestoreSnapshotHere {
    kind: SubjectKind,
    id: SubjectName,
    snapshot: SnapshotName,
}

/// Where a snapshot is written to.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RestoreBody {
    /// A directory that is not there, or is empty: an absolute path beneath a root of the server
    to: String,
    /// Without it nothing is written, and the answer says what would be
    #[serde(default)]
    confirm: bool,
}

impl Endpoint for RestoreSnapshotHere {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/snapshots/{snapshot}/restore";
    const NAME: &'static str = "restore_snapshot";
    const SUMMARY: &'static str = "Write a snapshot of a directory, a session or a profile to a new directory of the server's host, beneath one of its roots";
    const ACCESS: Access = Access::HostToken(TokenScope::Write);
    const ANSWERED: Answered = Answered::AsOperation;
    type Body = RestoreBody;
    type Answer = StoredRestored;

    async fn serve(self, body: RestoreBody, call: &Call) -> Result<Reply<StoredRestored>, Problem> {
        if self.kind == SubjectKind::Container {
            let said = "a container comes back with its image, where its engine is: `stasis container restore`";
            return Err(Problem::new(ProblemCode::NotFound, said));
        }
        let command = RestoreStored {
            wanted: self.snapshot.0,
            to: place(call, &body.to).await?,
            run: if body.confirm {
                RunMode::Real
            } else {
                RunMode::Dry
            },
            actor: call.actor(),
            progress: call.progress.clone(),
        };
        let found = subject(call, self.kind, self.id.as_str()).await?;
        Ok(found.restore(&command).await?.into())
    }
}
