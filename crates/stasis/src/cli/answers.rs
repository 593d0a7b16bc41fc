//! Which command answers with what: the one list that the published schemas come from (ADR 81).
//!
//! A command that is not in it fails a test; one that prints a type which is not declared for it fails every test that runs it with
//! `--json`, because tests run builds with assertions.

use super::envelope::{self, ERROR};
use super::output::Measured;
use super::project::show::SnapshotDetails;
use super::store::Probed;
use super::workspace::{ForgottenUndos, Initiated, Rewound, StatusShown};
use super::{demo, events, everyday, hook, man, mount, profile, protect, serve};
use crate::report::ErrorDocument;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};
use stasis_engine::archive::{Archived, Extracted, ListedArchive, VerifiedArchive};
use stasis_engine::catalog::{ListedEntry, RepoMade, RepoSnapshotRow, RepoStats};
use stasis_engine::check::{RepoChecked, RepoLetGo};
use stasis_engine::clone::Cloned;
use stasis_engine::copy::StoreCopied;
use stasis_engine::demo::DemoScene;
use stasis_engine::demo::lease::LeaseDemoReport;
use stasis_engine::diff::TreeDifference;
use stasis_engine::doctor::DoctorFinding;
use stasis_engine::find::FoundVersions;
use stasis_engine::gc::{RepoCollected, RepoForgotten};
use stasis_engine::hold::HoldResult;
use stasis_engine::jobs::JobList;
use stasis_engine::keys::{NewKey, Rekeyed, RotatedKeys};
use stasis_engine::kind::container::{
    ContainerDiff, ContainerExported, ContainerImported, ContainerRestored, ContainerSaveBegun,
    ContainerSaved, ContainerSnapshotShown, ContainerSnapshots, ContainerSnapshotsDeleted,
    ContainerValidated, ContainersCleaned, ContainersStats,
};
use stasis_engine::kind::directory::{DirDiff, DirectoryUse, Timeline};
use stasis_engine::kind::profile::{
    CheckedProfile, Collected, Deleted, Forked, Pinned, ProfileDiff, ProfileList, ProfileLoaded,
    ProfileLog, ProfileLogins, ProfileRan, ProfileSaved, ProfileUse, ProfileVerified, RolledBack,
    ShownProfile, SnapshotList, StateImported,
};
use stasis_engine::kind::project::{
    ProjectCollected, ProjectDiff, ProjectDuplicated, ProjectMade, ProjectRestored, ProjectSaved,
    ProjectSnapshot, ProjectStatus, ProjectUpgraded, ProjectVerified, ServiceState,
};
use stasis_engine::kind::session::{
    ReapedSessions, SessionCaptured, SessionDeleted, SessionExported, SessionForked, SessionList,
    SessionRan, SessionRegistered, SessionShown, SessionSlept, SessionWoken, SnapshotDeleted,
    WakeUndone,
};
use stasis_engine::kind::workspace::{
    CheckedWorkspace, CheckpointRow, Checkpointed, Checkpoints, Compacted, ComparedTrees,
    DeletedCheckpoint, ForkedWorkspace, Forks, MaterializedCheckpoint, PathDiff, PathHistory,
    PromotedFork, PromptRow, RemovedFork, RestoredWorkspace, RevertedPath, UndoneChange, Watched,
    WorkspaceChanges,
};
use stasis_engine::lease::{Acquired, Changed, Shown, Unlocked};
use stasis_engine::model::policy::tenant::TenantPolicy;
use stasis_engine::operation::Operation;
use stasis_engine::reap::Reaped;
use stasis_engine::repair::{AcceptedRollback, Repair};
use stasis_engine::restore::RepoRestored;
use stasis_engine::save::RepoSaved;
use stasis_engine::subjects::{LinkedDir, SubjectList};
use stasis_engine::tenant::PolicySet;
use stasis_engine::tokens::{TokenCreated, TokenList, TokenRevoked};
use stasis_engine::undo::UndoneRestore;
use std::any::TypeId;

/// What one command prints with `--json`.
pub(super) struct CommandAnswer {
    /// The words of the command, with dots between them.
    pub(super) command: &'static str,
    /// One of these each time; none where a command prints something else than results.
    pub(super) results: &'static [ResultType],
}

/// A type that a command prints.
pub(super) struct ResultType {
    id: fn() -> TypeId,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

const fn of<T: JsonSchema + 'static>() -> ResultType {
    ResultType {
        id: TypeId::of::<T>,
        schema: |generator| generator.subschema_for::<T>(),
    }
}

const fn one(command: &'static str, results: &'static [ResultType]) -> CommandAnswer {
    CommandAnswer { command, results }
}

/// A command that prints no results: content, code for a shell, a protocol.
const fn none(command: &'static str) -> CommandAnswer {
    one(command, &[])
}

/// Every command. What is only another spelling of one (`snapshots`, `profile-snapshots`) has the answer of that one.
pub(super) const ANSWERS: &[CommandAnswer] = &[
    one(ERROR, &[of::<ErrorDocument>()]),
    // Everyday verbs.
    one("save", &[of::<ProjectSaved>(), of::<ContainerSaved>()]),
    one(
        "restore",
        &[
            of::<ProjectRestored>(),
            of::<ContainerRestored>(),
            of::<RestoredWorkspace>(),
            of::<RevertedPath>(),
            of::<MaterializedCheckpoint>(),
            of::<RolledBack>(),
            of::<ProfileLoaded>(),
            of::<profile::everyday::WouldWrite>(),
        ],
    ),
    one(
        "undo",
        &[
            of::<ProjectRestored>(),
            of::<ContainerRestored>(),
            of::<ContainerSnapshotShown>(),
            of::<WakeUndone>(),
            of::<UndoneChange>(),
            of::<RolledBack>(),
        ],
    ),
    one("log", &[of::<Timeline>(), of::<ProfileLog>()]),
    one(
        "diff",
        &[of::<DirDiff>(), of::<ProfileDiff>(), of::<ContainerDiff>()],
    ),
    one(
        "show",
        &[
            of::<SnapshotDetails>(),
            of::<CheckpointRow>(),
            of::<ShownProfile>(),
            of::<ContainerSnapshotShown>(),
        ],
    ),
    one("ls", &[of::<Vec<ListedEntry>>()]),
    none("cat"),
    one("find", &[of::<FoundVersions>()]),
    one("du", &[of::<DirectoryUse>(), of::<ProfileUse>()]),
    one(
        "check",
        &[
            of::<everyday::CheckedDirectory>(),
            of::<CheckedProfile>(),
            of::<Measured<RepoChecked>>(),
        ],
    ),
    one("mount", &[of::<mount::MountedAt>()]),
    one("pin", &[of::<ProjectSnapshot>(), of::<Pinned>()]),
    one(
        "forget",
        &[
            of::<everyday::ForgetResult>(),
            of::<ContainerSnapshotsDeleted>(),
        ],
    ),
    one("gc", &[of::<ProjectCollected>(), of::<Collected>()]),
    one("list", &[of::<SubjectList>()]),
    one("link", &[of::<LinkedDir>()]),
    one("copy", &[of::<StoreCopied>()]),
    one("repair", &[of::<Repair>(), of::<AcceptedRollback>()]),
    one("fork", &[of::<ForkedWorkspace>()]),
    one("fork.list", &[of::<Forks>()]),
    one("fork.diff", &[of::<ComparedTrees>()]),
    one("fork.promote", &[of::<PromotedFork>()]),
    one("fork.rm", &[of::<Vec<RemovedFork>>()]),
    // Agents.
    one(
        "protect",
        &[of::<protect::Protected>(), of::<protect::Unprotected>()],
    ),
    one("rewind", &[of::<Rewound>(), of::<Vec<PromptRow>>()]),
    one("hook.install", &[of::<hook::SettingsChange>()]),
    one("hook.uninstall", &[of::<hook::SettingsChange>()]),
    one("hook.show", &[of::<Vec<hook::HookRow>>()]),
    one("hook.test", &[of::<hook::TrialReport>()]),
    none("hook.run"),
    none("mcp"),
    one("mcp.install", &[of::<hook::SettingsChange>()]),
    one("mcp.uninstall", &[of::<hook::SettingsChange>()]),
    // Projects.
    one("project.init", &[of::<ProjectMade>()]),
    one("project.save", &[of::<ProjectSaved>()]),
    one("project.restore", &[of::<ProjectRestored>()]),
    one("project.start", &[of::<Vec<ServiceState>>()]),
    one("project.stop", &[of::<Vec<ServiceState>>()]),
    one("project.status", &[of::<ProjectStatus>()]),
    one("project.list", &[of::<Vec<ProjectSnapshot>>()]),
    one("project.show", &[of::<SnapshotDetails>()]),
    one("project.diff", &[of::<ProjectDiff>()]),
    one("project.label", &[of::<ProjectSnapshot>()]),
    one("project.pin", &[of::<ProjectSnapshot>()]),
    one("project.delete", &[of::<RepoForgotten>()]),
    one("project.verify", &[of::<ProjectVerified>()]),
    one("project.gc", &[of::<ProjectCollected>()]),
    one("project.duplicate", &[of::<ProjectDuplicated>()]),
    one("project.upgrade", &[of::<ProjectUpgraded>()]),
    one("project.autosave", &[of::<ProjectSaved>()]),
    // Workspaces.
    one("workspace.init", &[of::<Initiated>()]),
    one("workspace.watch", &[of::<Watched>()]),
    one("workspace.create", &[of::<Checkpointed>()]),
    one("workspace.list", &[of::<Checkpoints>()]),
    one("workspace.changes", &[of::<WorkspaceChanges>()]),
    one("workspace.diff", &[of::<PathDiff>(), of::<ComparedTrees>()]),
    one("workspace.revert", &[of::<RevertedPath>()]),
    one("workspace.restore", &[of::<RestoredWorkspace>()]),
    one("workspace.history", &[of::<PathHistory>()]),
    one("workspace.delete", &[of::<DeletedCheckpoint>()]),
    one("workspace.compact", &[of::<Compacted>()]),
    one("workspace.fork", &[of::<ForkedWorkspace>()]),
    one("workspace.materialize", &[of::<MaterializedCheckpoint>()]),
    one(
        "workspace.undo",
        &[of::<UndoneChange>(), of::<ForgottenUndos>()],
    ),
    one("workspace.check", &[of::<CheckedWorkspace>()]),
    one("workspace.status", &[of::<StatusShown>()]),
    // Profiles.
    one("profile.run", &[of::<ProfileRan>()]),
    one("profile.save", &[of::<ProfileSaved>()]),
    one("profile.load", &[of::<ProfileLoaded>()]),
    one("profile.verify", &[of::<ProfileVerified>()]),
    one(
        "profile.list",
        &[
            of::<ProfileList>(),
            of::<SnapshotList>(),
            of::<profile::LocalCopies>(),
        ],
    ),
    one("profile.show", &[of::<ShownProfile>()]),
    one("profile.rollback", &[of::<RolledBack>()]),
    one("profile.pin", &[of::<Pinned>()]),
    one("profile.unpin", &[of::<Pinned>()]),
    one("profile.delete", &[of::<Deleted>()]),
    one("profile.gc", &[of::<Collected>()]),
    one("profile.fork", &[of::<Forked>()]),
    one("profile.diff", &[of::<ProfileDiff>()]),
    one("profile.discard", &[of::<profile::Discarded>()]),
    one("profile.rekey", &[of::<Rekeyed>()]),
    one("profile.force-unlock", &[of::<Unlocked>()]),
    one("profile.reap", &[of::<Reaped>()]),
    one("profile.logins", &[of::<ProfileLogins>()]),
    one("profile.shim", &[of::<profile::WrittenShim>()]),
    one(
        "profile.storage-state.export",
        &[of::<profile::WrittenState>()],
    ),
    one("profile.storage-state.import", &[of::<StateImported>()]),
    // Plumbing.
    one(
        "container.create",
        &[of::<ContainerSaved>(), of::<ContainerSaveBegun>()],
    ),
    one("container.restore", &[of::<ContainerRestored>()]),
    one("container.list", &[of::<ContainerSnapshots>()]),
    one("container.show", &[of::<ContainerSnapshotShown>()]),
    one("container.delete", &[of::<ContainerSnapshotsDeleted>()]),
    one("container.cleanup", &[of::<ContainersCleaned>()]),
    one("container.stats", &[of::<ContainersStats>()]),
    one("container.diff", &[of::<ContainerDiff>()]),
    one("container.export", &[of::<ContainerExported>()]),
    one(
        "container.import",
        &[of::<ContainerImported>(), of::<ContainerRestored>()],
    ),
    one("container.validate", &[of::<ContainerValidated>()]),
    one("session.register", &[of::<SessionRegistered>()]),
    one("session.heartbeat", &[of::<SessionRegistered>()]),
    one("session.list", &[of::<SessionList>()]),
    one("session.show", &[of::<SessionShown>()]),
    one("session.snapshot", &[of::<SessionCaptured>()]),
    one("session.sleep", &[of::<SessionSlept>()]),
    one("session.wake", &[of::<SessionWoken>()]),
    one("session.reap", &[of::<ReapedSessions>()]),
    one("session.fork", &[of::<SessionForked>()]),
    one("session.export", &[of::<SessionExported>()]),
    one("session.delete", &[of::<SessionDeleted>()]),
    one("session.delete-snapshot", &[of::<SnapshotDeleted>()]),
    one("session.run", &[of::<SessionRan>()]),
    one("lease.acquire", &[of::<Acquired>()]),
    one("lease.renew", &[of::<Changed>()]),
    one("lease.release", &[of::<Changed>()]),
    one("lease.show", &[of::<Shown>()]),
    one("lease.force-unlock", &[of::<Unlocked>()]),
    one("lease.reap", &[of::<Reaped>()]),
    one("lease.hold", &[of::<HoldResult>()]),
    one("store.probe", &[of::<Probed>()]),
    one("operation.show", &[of::<Operation>()]),
    one("tenant.policy.show", &[of::<TenantPolicy>()]),
    one("tenant.policy.set", &[of::<PolicySet>()]),
    one("repo.init", &[of::<RepoMade>()]),
    one("repo.save", &[of::<Measured<RepoSaved>>()]),
    one("repo.restore", &[of::<Measured<RepoRestored>>()]),
    one("repo.undo", &[of::<UndoneRestore>()]),
    one("repo.snapshots", &[of::<Vec<RepoSnapshotRow>>()]),
    one("repo.ls", &[of::<Vec<ListedEntry>>()]),
    none("repo.cat"),
    one("repo.diff", &[of::<Vec<TreeDifference>>()]),
    one("repo.check", &[of::<Measured<RepoChecked>>()]),
    one("repo.gc", &[of::<Measured<RepoCollected>>()]),
    one("repo.forget", &[of::<RepoForgotten>(), of::<RepoLetGo>()]),
    one("repo.retire", &[of::<RepoLetGo>()]),
    one("repo.pin", &[of::<RepoSnapshotRow>()]),
    one("repo.unpin", &[of::<RepoSnapshotRow>()]),
    one("repo.stats", &[of::<RepoStats>()]),
    one("archive.create", &[of::<Measured<Archived>>()]),
    one("archive.extract", &[of::<Measured<Extracted>>()]),
    one("archive.list", &[of::<Vec<ListedArchive>>()]),
    none("archive.cat"),
    one("archive.verify", &[of::<Measured<VerifiedArchive>>()]),
    one("clone", &[of::<Measured<Cloned>>()]),
    // Admin.
    one("key.init", &[of::<NewKey>()]),
    one("key.rotate", &[of::<RotatedKeys>()]),
    one("serve", &[of::<serve::Listening>()]),
    one("ui", &[of::<everyday::PageOpened>()]),
    one("jobs", &[of::<JobList>()]),
    one("token.create", &[of::<TokenCreated>()]),
    one("token.list", &[of::<TokenList>()]),
    one("token.revoke", &[of::<TokenRevoked>()]),
    one("events", &[of::<events::EventList>()]),
    one("doctor", &[of::<Vec<DoctorFinding>>()]),
    one("demo", &[of::<demo::PlayedDemo>(), of::<DemoScene>()]),
    one("demo.lease", &[of::<LeaseDemoReport>()]),
    one("man", &[of::<man::ManPage>(), of::<man::ManPages>()]),
    none("completions"),
    none("schema"),
    none("options"),
    none("reference"),
];

/// The answer of a command, if it is one of ours.
pub(super) fn of_command(command: &str) -> Option<&'static CommandAnswer> {
    ANSWERS.iter().find(|answer| answer.command == command)
}

/// Stops a test that runs a command which prints what is not declared for it.
pub(super) fn ensure_declared<T: 'static>(command: &str) {
    let is_declared = || {
        let answer = of_command(command);
        answer.is_some_and(|answer| {
            answer
                .results
                .iter()
                .any(|one| (one.id)() == TypeId::of::<T>())
        })
    };
    debug_assert!(
        is_declared(),
        "`{command}` prints {}, which `ANSWERS` does not say",
        std::any::type_name::<T>()
    );
}

/// The schema of what one command prints, with everything that it refers to.
pub(super) fn schema(answer: &CommandAnswer) -> Value {
    let mut generator = generator();
    let mut schema = enveloped(answer, &mut generator);
    finish(&mut schema, generator);
    schema
}

/// The schemas of all commands, which share what they refer to.
pub(super) fn all_schemas() -> Value {
    let mut generator = generator();
    let printed = ANSWERS.iter().filter(|answer| !answer.results.is_empty());
    let each: Map<String, Value> = printed
        .map(|answer| {
            let name = envelope::schema_name(answer.command);
            (name, enveloped(answer, &mut generator))
        })
        .collect();
    let any: Vec<Value> = each
        .keys()
        .map(|name| json!({ "$ref": format!("#/$defs/{}", name.replace('/', "~1")) }))
        .collect();
    let mut schema = json!({ "title": "What stasis prints with --json", "anyOf": any });
    finish(&mut schema, generator);
    if let Some(definitions) = schema["$defs"].as_object_mut() {
        definitions.extend(each);
    }
    schema
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
}

/// Adds what a schema refers to.
fn finish(schema: &mut Value, mut generator: SchemaGenerator) {
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        schema["$defs"] = Value::Object(definitions);
    }
}

/// The envelope of a command's results.
fn enveloped(answer: &CommandAnswer, generator: &mut SchemaGenerator) -> Value {
    let results = answer.results.iter();
    let results: Vec<Value> = results
        .map(|result| listed((result.schema)(generator).to_value()))
        .collect();
    let (name, which) = (
        envelope::schema_name(answer.command),
        if results.len() == 1 { "allOf" } else { "anyOf" },
    );
    json!({
        "title": name,
        "type": "object",
        "properties": {
            "schema": { "const": name },
            "subject": {
                "description": "What it is about, as it is typed: `dir:notes`, `profile:acme/alice@131`, or a path.",
                "type": "string",
            },
            "snapshot": {
                "description": "The snapshot or checkpoint that it is about, as it is typed.",
                "type": "string",
            },
        },
        "required": ["schema"],
        which: results,
    })
}

/// A list stands under `items`.
fn listed(schema: Value) -> Value {
    if schema["type"] != "array" {
        return schema;
    }
    json!({ "type": "object", "properties": { "items": schema }, "required": ["items"] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{command_name, help};
    use clap::Command;
    use std::collections::BTreeSet;

    /// The names of all commands that can be run.
    fn names(command: &Command, above: &[&str], all: &mut BTreeSet<String>) {
        for inner in command.get_subcommands() {
            if matches!(inner.get_name(), "internal" | "help") {
                continue;
            }
            let path: Vec<&str> = above.iter().copied().chain([inner.get_name()]).collect();
            if !inner.is_subcommand_required_set() {
                all.insert(command_name(&path));
            }
            names(inner, &path, all);
        }
    }

    #[test]
    fn every_command_says_what_it_answers() {
        let mut commands = BTreeSet::from([ERROR.to_owned()]);
        names(&help::program(), &[], &mut commands);

        let declared: Vec<String> = ANSWERS.iter().map(|one| one.command.to_owned()).collect();

        let unique: BTreeSet<String> = declared.iter().cloned().collect();
        assert_eq!(unique.len(), declared.len(), "one answer for each command");
        assert_eq!(unique, commands);
    }
}
