//! What changes a subject, or one of its snapshots, as the store has it. What is restored to a path of some host is not part of it.
//!
//! Whoever destroys says which generation he saw, and without `confirm` is told what would be done.

use super::profile_snapshots::ensure_pointer_seen;
use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply, SeenBefore};
use crate::http::operations::Answered;
use crate::http::parameters::{Flag, SnapshotName, SubjectName};
use crate::http::problem::{Problem, ProblemCode};
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::error::Error;
use stasis_engine::kind::profile::{
    DeleteSnapshot, Deleted, ForkProfile, Forked, LocatedProfile, Pinned, Pinning, RollbackProfile,
    RolledBack,
};
use stasis_engine::lease::{ForceUnlock, Shown, Unlocked};
use stasis_engine::model::format::lease::Holder;
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::{Generation, Label, Lineage, ProfileId, ProfileRef};
use stasis_engine::snapshot_change::{
    ChangeSnapshot, SnapshotForgotten, SnapshotPinned, TreeSubject,
};
use stasis_engine::subjects::SubjectKind;

/// The subject of a path.
struct Subject<'a> {
    kind: SubjectKind,
    name: &'a SubjectName,
    call: &'a Call,
}

impl Subject<'_> {
    /// It, if it is a profile.
    fn profile(&self) -> Result<ProfileRef, Problem> {
        if self.kind != SubjectKind::Profile {
            let said = "only profiles have this: what lies in a directory, a session or a container is changed on its host";
            return Err(Problem::new(ProblemCode::NotFound, said));
        }
        let named = format!("{}/{}", self.call.tenant()?, self.name.as_str());
        named.parse().map_err(|_| Problem::nowhere())
    }

    async fn lineage(&self) -> Result<Lineage, Problem> {
        let profile = self.profile()?;
        Ok(self.call.engine.profiles().one_lineage(&profile).await?)
    }

    async fn located(&self, snapshot: &SnapshotName) -> Result<LocatedProfile, Problem> {
        let profile = self.profile()?;
        let profiles = self.call.engine.profiles();
        Ok(profiles.locate(&profile, &snapshot.0).await?)
    }

    /// It, if it is a directory or a session.
    fn tree(&self) -> Result<TreeSubject, Problem> {
        if self.kind == SubjectKind::Container {
            let said = "snapshots of containers go with their images, and are changed where their engine is: `stasis container delete`";
            return Err(Problem::new(ProblemCode::NotFound, said));
        }
        let (tenant, engine) = (self.call.tenant()?, &self.call.engine);
        Ok(engine.tree_subject(&tenant, self.kind, self.name.as_str())?)
    }

    fn change(&self, snapshot: SnapshotName) -> ChangeSnapshot {
        ChangeSnapshot {
            snapshot: snapshot.0,
            seen: self.call.if_match,
            actor: self.call.actor(),
        }
    }

    async fn pointer(&self, lineage: &Lineage) -> Result<Option<Generation>, Problem> {
        let found = self.call.engine.lineages().pointer(lineage).await;
        let found = found.map_err(Error::from)?;
        Ok(found.map(|pointer| pointer.value.generation))
    }
}

/// `POST /v1/subjects/{kind}/{id}/rollback`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RollBackSubject {
    kind: SubjectKind,
    id: SubjectName,
}

/// Which snapshot becomes the active one, and why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RollBackBody {
    /// `latest~1`, or the beginning of the snapshot's sha256
    snapshot: SnapshotName,
    /// Without it nothing is changed, and the answer says what would be
    #[serde(default)]
    confirm: bool,
    /// Why, for the log of events
    #[serde(default)]
    reason: Label,
}

impl Endpoint for RollBackSubject {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/rollback";
    const NAME: &'static str = "roll_back_subject";
    const SUMMARY: &'static str =
        "Make an older snapshot of a profile the active one; whoever holds the lease is thrown out";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    const SEEN: SeenBefore = SeenBefore::Needed;
    type Body = RollBackBody;
    type Answer = RolledBack;

    async fn serve(self, body: RollBackBody, call: &Call) -> Result<Reply<RolledBack>, Problem> {
        let subject = Subject {
            kind: self.kind,
            name: &self.id,
            call,
        };
        if body.confirm {
            call.seen()?;
        }
        let found = subject.located(&body.snapshot).await?;
        let mut cmd = RollbackProfile {
            sha: found.sha(),
            lineage: found.lineage,
            reason: body.reason,
            actor: call.actor(),
            agreed: None,
        };
        let profiles = call.engine.profiles();
        let plan = profiles.plan_rollback(&cmd).await?;
        call.ensure_seen(Some(plan.generation))?;
        let done = if body.confirm {
            // Whatever becomes active, or takes the lease, from here on is not what was seen.
            cmd.agreed = Some((&plan).into());
            profiles.rollback(&cmd).await?
        } else {
            plan
        };
        if done.applied && done.evicts.is_some() {
            call.metrics.add(call.metrics.of_profiles().forced());
        }
        let generation = done.generation;
        Ok(Reply::of(done, Some(generation)))
    }
}

/// `DELETE /v1/subjects/{kind}/{id}/snapshots/{snapshot}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DeleteSubjectSnapshot {
    kind: SubjectKind,
    id: SubjectName,
    snapshot: SnapshotName,
    /// Without it nothing is changed, and the answer says what would be
    #[serde(default)]
    confirm: Flag,
}

/// A snapshot that is deleted, or would be.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::http) enum SnapshotDeletion {
    /// Of a profile.
    Profile(Box<Deleted>),
    /// Of a directory or a session.
    Tree(SnapshotForgotten),
}

impl Endpoint for DeleteSubjectSnapshot {
    const METHOD: Method = Method::DELETE;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/snapshots/{snapshot}";
    const NAME: &'static str = "delete_subject_snapshot";
    const SUMMARY: &'static str = "Delete a snapshot of a profile, a directory or a session that is neither active nor pinned";
    const ACCESS: Access = Access::Token(TokenScope::Admin);
    const SEEN: SeenBefore = SeenBefore::Needed;
    type Body = NoBody;
    type Answer = SnapshotDeletion;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<SnapshotDeletion>, Problem> {
        let subject = Subject {
            kind: self.kind,
            name: &self.id,
            call,
        };
        if self.confirm.0 {
            call.seen()?;
        }
        if self.kind != SubjectKind::Profile {
            let (tree, cmd) = (subject.tree()?, subject.change(self.snapshot));
            let done = if self.confirm.0 {
                tree.forget(&cmd).await?
            } else {
                tree.plan_forget(&cmd).await?
            };
            let generation = done.generation;
            return Ok(Reply::of(SnapshotDeletion::Tree(done), Some(generation)));
        }
        let found = subject.located(&self.snapshot).await?;
        ensure_pointer_seen(call, &found.lineage).await?;
        let cmd = DeleteSnapshot {
            sha: found.sha(),
            lineage: found.lineage,
            actor: call.actor(),
        };
        let profiles = call.engine.profiles();
        let done = if self.confirm.0 {
            profiles.delete(&cmd).await?
        } else {
            profiles.plan_delete(&cmd).await?
        };
        let generation = subject.pointer(&cmd.lineage).await?;
        let done = SnapshotDeletion::Profile(Box::new(done));
        Ok(Reply::of(done, generation))
    }
}

/// A snapshot that is pinned, or is not any more.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(in crate::http) enum SnapshotPinning {
    /// Of a profile.
    Profile(Pinned),
    /// Of a directory or a session.
    Tree(SnapshotPinned),
}

/// Pins a snapshot, or takes its pin away.
async fn pin(
    subject: Subject<'_>,
    snapshot: SnapshotName,
    pinning: Pinning,
) -> Result<Reply<SnapshotPinning>, Problem> {
    if subject.kind != SubjectKind::Profile {
        let (tree, cmd) = (subject.tree()?, subject.change(snapshot));
        let pinned = tree.pin(&cmd, pinning == Pinning::Pin).await?;
        let generation = pinned.generation;
        return Ok(Reply::of(SnapshotPinning::Tree(pinned), Some(generation)));
    }
    let found = subject.located(&snapshot).await?;
    ensure_pointer_seen(subject.call, &found.lineage).await?;
    let profiles = subject.call.engine.profiles();
    let pinned = profiles.pin(&found.lineage, &found.sha(), pinning).await?;
    let generation = pinned.generation;
    let pinned = SnapshotPinning::Profile(pinned);
    Ok(Reply::of(pinned, Some(generation)))
}

/// `POST /v1/subjects/{kind}/{id}/snapshots/{snapshot}/pin`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct PinSnapshot {
    kind: SubjectKind,
    id: SubjectName,
    snapshot: SnapshotName,
}

impl Endpoint for PinSnapshot {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/snapshots/{snapshot}/pin";
    const NAME: &'static str = "pin_snapshot";
    const SUMMARY: &'static str = "Keep a snapshot whatever a policy says; it cannot be deleted";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    const SEEN: SeenBefore = SeenBefore::Optional;
    type Body = NoBody;
    type Answer = SnapshotPinning;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<SnapshotPinning>, Problem> {
        let subject = Subject {
            kind: self.kind,
            name: &self.id,
            call,
        };
        pin(subject, self.snapshot, Pinning::Pin).await
    }
}

/// `POST /v1/subjects/{kind}/{id}/snapshots/{snapshot}/unpin`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct UnpinSnapshot {
    kind: SubjectKind,
    id: SubjectName,
    snapshot: SnapshotName,
}

impl Endpoint for UnpinSnapshot {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/snapshots/{snapshot}/unpin";
    const NAME: &'static str = "unpin_snapshot";
    const SUMMARY: &'static str = "Keep a snapshot no longer than others";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    const SEEN: SeenBefore = SeenBefore::Optional;
    type Body = NoBody;
    type Answer = SnapshotPinning;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<SnapshotPinning>, Problem> {
        let subject = Subject {
            kind: self.kind,
            name: &self.id,
            call,
        };
        pin(subject, self.snapshot, Pinning::Unpin).await
    }
}

/// `POST /v1/subjects/{kind}/{id}/fork`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ForkSubject {
    kind: SubjectKind,
    id: SubjectName,
}

/// What the new profile is called, and what it begins with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ForkBody {
    /// The name of the new profile, of the same tenant and major
    target: ProfileId,
    /// What it begins with; the active snapshot when not given
    #[serde(default)]
    snapshot: Option<SnapshotName>,
}

impl Endpoint for ForkSubject {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/fork";
    const NAME: &'static str = "fork_subject";
    const SUMMARY: &'static str = "Begin a new profile with a snapshot of another one";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    const ANSWERED: Answered = Answered::AsOperation;
    type Body = ForkBody;
    type Answer = Forked;

    async fn serve(self, body: ForkBody, call: &Call) -> Result<Reply<Forked>, Problem> {
        let subject = Subject {
            kind: self.kind,
            name: &self.id,
            call,
        };
        let (source, sha) = match &body.snapshot {
            Some(snapshot) => {
                let found = subject.located(snapshot).await?;
                let sha = found.sha();
                (found.lineage, Some(sha))
            }
            None => (subject.lineage().await?, None),
        };
        let cmd = ForkProfile {
            target: ProfileRef {
                tenant: source.tenant.clone(),
                profile: body.target,
                major: None,
            },
            source,
            sha,
            holder: Holder {
                run_id: call.engine.leases().new_run_id(),
                host: call.actor(),
                host_run_id: Label::nobody(),
            },
        };
        let forked = Box::pin(call.engine.profiles().fork(&cmd)).await?;
        Ok(forked.into())
    }
}

/// `POST /v1/subjects/{kind}/{id}/force-unlock`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ForceUnlockSubject {
    kind: SubjectKind,
    id: SubjectName,
}

/// That the holder is thrown out, and why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct UnlockBody {
    /// Without it nothing is changed, and the answer says who would be thrown out
    #[serde(default)]
    confirm: bool,
    /// Why, for the log of events; needed with `confirm`
    #[serde(default)]
    reason: Label,
}

/// A holder that is thrown out, or would be.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct SubjectUnlocked {
    /// Whether it was done.
    applied: bool,
    /// The lock as it was before.
    lock: Shown,
    /// What was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    unlocked: Option<Unlocked>,
}

impl Endpoint for ForceUnlockSubject {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/force-unlock";
    const NAME: &'static str = "force_unlock_subject";
    const SUMMARY: &'static str =
        "Throw the holder of a profile's lease out; If-Match has the generation of the lock";
    const ACCESS: Access = Access::Token(TokenScope::Admin);
    const SEEN: SeenBefore = SeenBefore::Needed;
    type Body = UnlockBody;
    type Answer = SubjectUnlocked;

    async fn serve(self, body: UnlockBody, call: &Call) -> Result<Reply<SubjectUnlocked>, Problem> {
        let subject = Subject {
            kind: self.kind,
            name: &self.id,
            call,
        };
        if body.confirm {
            call.seen()?;
        }
        let lineage = subject.lineage().await?;
        let lock = call.engine.leases().show(&lineage).await?;
        let generation = lock.lock.generation;
        call.ensure_seen(Some(generation))?;
        if !body.confirm {
            let plan = SubjectUnlocked {
                applied: false,
                lock,
                unlocked: None,
            };
            return Ok(Reply::of(plan, Some(generation)));
        }
        if body.reason == Label::nobody() {
            let said = "the body: say why, as `reason`; nothing was changed";
            return Err(Problem::parameters(&said));
        }
        let cmd = ForceUnlock {
            lineage,
            // Whoever came after the one who was seen is not thrown out for him.
            seen: Some(lock.lock.fence()),
            reason: body.reason,
            actor: call.actor(),
        };
        let unlocked = call.engine.leases().force_unlock(cmd).await?;
        call.metrics.add(call.metrics.of_profiles().forced());
        Ok(SubjectUnlocked {
            applied: true,
            lock,
            unlocked: Some(unlocked),
        }
        .into())
    }
}
