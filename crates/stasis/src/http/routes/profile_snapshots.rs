//! The five routes of the contract for browser profiles, over all majors of Chrome unless one is named.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply, SeenBefore};
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::error::Error;
use stasis_engine::kind::profile::{
    DeleteSnapshot, Deleted, LocatedProfile, RollbackProfile, RolledBack, ShaPrefix, ShownProfile,
    SnapshotList,
};
use stasis_engine::lease::{ForceUnlock, Unlocked};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::{ChromeMajor, Label, Lineage, ProfileId, ProfileRef, TenantId};
use stasis_engine::model::snapshot_ref::SnapshotRef;

/// Which major, if it is named.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Major(ChromeMajor);

impl TryFrom<String> for Major {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let major = text.parse::<ChromeMajor>();
        Ok(Self(major.map_err(|why| why.to_string())?))
    }
}

impl JsonSchema for Major {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ChromeMajor".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": 9999 })
    }
}

/// The beginning of a digest.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
struct Sha(ShaPrefix);

impl TryFrom<String> for Sha {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let sha = text.parse::<ShaPrefix>();
        Ok(Self(sha.map_err(|why| why.to_string())?))
    }
}

impl JsonSchema for Sha {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ShaPrefix".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{1,64}$" })
    }
}

fn subject(tenant: &TenantId, profile: &ProfileId, major: Option<Major>) -> ProfileRef {
    ProfileRef {
        tenant: tenant.clone(),
        profile: profile.clone(),
        major: major.map(|major| major.0),
    }
}

/// The snapshot that is meant.
async fn located(call: &Call, subject: &ProfileRef, sha: &Sha) -> Result<LocatedProfile, Problem> {
    let wanted = SnapshotRef::Text(sha.0.to_string());
    Ok(call.engine.profiles().locate(subject, &wanted).await?)
}

/// Refuses a change by somebody who saw another pointer; whatever else is damaged, the pointer alone is read.
pub(super) async fn ensure_pointer_seen(call: &Call, lineage: &Lineage) -> Result<(), Problem> {
    if call.if_match.is_none() {
        return Ok(());
    }
    let found = call.engine.lineages().pointer(lineage).await;
    let found = found.map_err(Error::from)?;
    call.ensure_seen(found.map(|pointer| pointer.value.generation))
}

/// `GET /v1/profile-snapshots/{tenant_id}/{profile_id}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListProfileSnapshots {
    tenant_id: TenantId,
    profile_id: ProfileId,
    /// Only those of this major version of Chrome
    #[serde(default)]
    chrome_major: Option<Major>,
}

impl Endpoint for ListProfileSnapshots {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/profile-snapshots/{tenant_id}/{profile_id}";
    const NAME: &'static str = "list_profile_snapshots";
    const SUMMARY: &'static str = "List the snapshots of a profile, the oldest first";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = SnapshotList;

    fn tenant(&self) -> Option<&TenantId> {
        Some(&self.tenant_id)
    }

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<SnapshotList>, Problem> {
        let subject = subject(&self.tenant_id, &self.profile_id, self.chrome_major);
        Ok(call.engine.profiles().snapshots(&subject).await?.into())
    }
}

/// `GET /v1/profile-snapshots/{tenant_id}/{profile_id}/{sha_prefix}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowProfileSnapshot {
    tenant_id: TenantId,
    profile_id: ProfileId,
    /// The beginning of the snapshot's sha256
    sha_prefix: Sha,
    /// Only those of this major version of Chrome
    #[serde(default)]
    chrome_major: Option<Major>,
}

impl Endpoint for ShowProfileSnapshot {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/profile-snapshots/{tenant_id}/{profile_id}/{sha_prefix}";
    const NAME: &'static str = "show_profile_snapshot";
    const SUMMARY: &'static str =
        "Show the manifest of a snapshot, and what its pointer and lock say";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = ShownProfile;

    fn tenant(&self) -> Option<&TenantId> {
        Some(&self.tenant_id)
    }

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<ShownProfile>, Problem> {
        let subject = subject(&self.tenant_id, &self.profile_id, self.chrome_major);
        let sha = &self.sha_prefix.0;
        let shown = call.engine.profiles().show(&subject, Some(sha)).await?;
        let pointer = shown.lineages.first().and_then(|one| one.pointer.as_ref());
        let generation = pointer.map(|pointer| pointer.generation);
        Ok(Reply::of(shown, generation))
    }
}

/// `POST /v1/profile-snapshots/{tenant_id}/{profile_id}/rollback`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RollbackProfileSnapshots {
    tenant_id: TenantId,
    profile_id: ProfileId,
    /// Only those of this major version of Chrome
    #[serde(default)]
    chrome_major: Option<Major>,
}

/// Which snapshot becomes the active one, and why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RollbackBody {
    /// The beginning of the snapshot's sha256
    sha_prefix: Sha,
    /// Without it nothing is changed, and the answer says what would be
    #[serde(default)]
    confirm: bool,
    /// Why, for the log of events
    #[serde(default)]
    reason: Label,
}

impl Endpoint for RollbackProfileSnapshots {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/profile-snapshots/{tenant_id}/{profile_id}/rollback";
    const NAME: &'static str = "rollback_profile";
    const SUMMARY: &'static str =
        "Make an older snapshot the active one; whoever holds the lease is thrown out";
    const ACCESS: Access = Access::Token(TokenScope::Write);
    const SEEN: SeenBefore = SeenBefore::Optional;
    type Body = RollbackBody;
    type Answer = RolledBack;

    fn tenant(&self) -> Option<&TenantId> {
        Some(&self.tenant_id)
    }

    async fn serve(self, body: RollbackBody, call: &Call) -> Result<Reply<RolledBack>, Problem> {
        let subject = subject(&self.tenant_id, &self.profile_id, self.chrome_major);
        let found = located(call, &subject, &body.sha_prefix).await?;
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
        if !body.confirm {
            let generation = plan.generation;
            return Ok(Reply::of(plan, Some(generation)));
        }
        if call.if_match.is_some() {
            cmd.agreed = Some((&plan).into());
        }
        let done = profiles.rollback(&cmd).await?;
        if done.applied && done.evicts.is_some() {
            call.metrics.add(call.metrics.of_profiles().forced());
        }
        let generation = done.generation;
        Ok(Reply::of(done, Some(generation)))
    }
}

/// `DELETE /v1/profile-snapshots/{tenant_id}/{profile_id}/{sha_prefix}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DeleteProfileSnapshot {
    tenant_id: TenantId,
    profile_id: ProfileId,
    /// The beginning of the snapshot's sha256
    sha_prefix: Sha,
    /// Only those of this major version of Chrome
    #[serde(default)]
    chrome_major: Option<Major>,
}

impl Endpoint for DeleteProfileSnapshot {
    const METHOD: Method = Method::DELETE;
    const PATH: &'static str = "/v1/profile-snapshots/{tenant_id}/{profile_id}/{sha_prefix}";
    const NAME: &'static str = "delete_profile_snapshot";
    const SUMMARY: &'static str =
        "Delete a snapshot that is neither active, nor pinned, nor the last one";
    const ACCESS: Access = Access::Token(TokenScope::Admin);
    const SEEN: SeenBefore = SeenBefore::Optional;
    type Body = NoBody;
    type Answer = Deleted;

    fn tenant(&self) -> Option<&TenantId> {
        Some(&self.tenant_id)
    }

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<Deleted>, Problem> {
        let subject = subject(&self.tenant_id, &self.profile_id, self.chrome_major);
        let found = located(call, &subject, &self.sha_prefix).await?;
        ensure_pointer_seen(call, &found.lineage).await?;
        let cmd = DeleteSnapshot {
            sha: found.sha(),
            lineage: found.lineage,
            actor: call.actor(),
        };
        Ok(call.engine.profiles().delete(&cmd).await?.into())
    }
}

/// `POST /v1/profile-snapshots/{tenant_id}/{profile_id}/force-unlock`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ForceUnlockProfile {
    tenant_id: TenantId,
    profile_id: ProfileId,
    /// Which major version of Chrome, where there are several
    #[serde(default)]
    chrome_major: Option<Major>,
}

/// That the holder is thrown out, and why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ForceUnlockBody {
    /// Without it nothing is changed
    #[serde(default)]
    confirm: bool,
    /// Why, for the log of events
    #[serde(default)]
    reason: Label,
}

/// What was done.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct ForceUnlocked {
    /// Whether it was done.
    applied: bool,
    #[serde(flatten)]
    unlocked: Unlocked,
}

impl Endpoint for ForceUnlockProfile {
    const METHOD: Method = Method::POST;
    const PATH: &'static str = "/v1/profile-snapshots/{tenant_id}/{profile_id}/force-unlock";
    const NAME: &'static str = "force_unlock_profile";
    const SUMMARY: &'static str = "Throw the holder of a profile's lease out, at once";
    const ACCESS: Access = Access::Token(TokenScope::Admin);
    const SEEN: SeenBefore = SeenBefore::Optional;
    type Body = ForceUnlockBody;
    type Answer = ForceUnlocked;

    fn tenant(&self) -> Option<&TenantId> {
        Some(&self.tenant_id)
    }

    async fn serve(
        self,
        body: ForceUnlockBody,
        call: &Call,
    ) -> Result<Reply<ForceUnlocked>, Problem> {
        let missing = |what: &str| Problem::parameters(&format!("the body: {what}"));
        if !body.confirm {
            return Err(missing("say `\"confirm\": true`; nothing was changed"));
        }
        if body.reason == Label::nobody() {
            return Err(missing("say why, as `reason`; nothing was changed"));
        }
        let subject = subject(&self.tenant_id, &self.profile_id, self.chrome_major);
        let lineage = call.engine.profiles().one_lineage(&subject).await?;
        let lock = call.engine.leases().show(&lineage).await?.lock;
        call.ensure_seen(Some(lock.generation))?;
        let cmd = ForceUnlock {
            lineage,
            // Whoever came after the one who was seen is not thrown out for him.
            seen: Some(lock.fence()),
            reason: body.reason,
            actor: call.actor(),
        };
        let unlocked = call.engine.leases().force_unlock(cmd).await?;
        call.metrics.add(call.metrics.of_profiles().forced());
        Ok(ForceUnlocked {
            applied: true,
            unlocked,
        }
        .into())
    }
}
