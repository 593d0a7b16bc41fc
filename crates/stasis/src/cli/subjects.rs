//! `stasis list`, `link` and `repair`: what a store holds, which directory of this host is what, and what became damaged

use super::byte_size::size;
use super::damage::{self, Ailment, DamageHints};
use super::output::{plural, printable, table};
use super::{CliContext, project, system_clock};
use crate::report::{Exit, exit_of};
use anyhow::bail;
use clap::Args;
use stasis_engine::address::shell_word;
use stasis_engine::error::ErrorKind;
use stasis_engine::kind::project::Project;
use stasis_engine::kind::workspace::WorkspaceRow;
use stasis_engine::model::id::{Label, Lineage, ProfileRef, TenantId};
use stasis_engine::model::time::{Clock as _, Timestamp};
use stasis_engine::open::Engine;
use stasis_engine::repair::{AcceptedRollback, Repair};
use stasis_engine::subjects::{
    DIR_PREFIX, LinkDir, LinkedDir, PROFILE_PREFIX, SubjectError, SubjectList, SubjectRow,
};
use std::path::{Path, PathBuf};

/// `stasis list`
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only subjects of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<TenantId>,
}

impl ListArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let listed = match context.engine().await {
            Ok(engine) => engine.subjects(self.tenant.as_ref()).await?,
            // Nobody named a store, and the first save makes the usual one.
            Err(error) if context.is_usual_store() && project::is_absent(&error) => {
                let host = context.environment.local_dirs.state.as_deref();
                if !SubjectList::is_unused(&context.location()?, host).await {
                    return Err(error);
                }
                SubjectList::of_host(host.filter(|_| self.tenant.is_none())).await
            }
            Err(error) => return Err(error),
        };
        context.output.result(&listed, list_text)?;
        let mut errors: Vec<&SubjectError> = Vec::new();
        for error in listed.items.iter().filter_map(|row| row.error.as_ref()) {
            // What is wrong with a pool is wrong with each of its subjects, and is said once.
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        for error in &errors {
            context.output.insist(&error_text(error));
        }
        let hints = DamageHints {
            store: None,
            has_marked: false,
        };
        for hint in hints.against(errors.iter().map(|error| Ailment::from(*error))) {
            context.output.insist(&hint);
        }
        // Damage is what must not be overlooked, whichever subject it is found in.
        let kinds = || errors.iter().map(|error| error.kind);
        let corrupt = kinds().find(|kind| *kind == ErrorKind::Corrupt);
        let kind = corrupt.or_else(|| kinds().next());
        Ok(kind.map_or(Exit::Done, exit_of))
    }
}

fn error_text(error: &SubjectError) -> String {
    let causes = std::iter::once(&error.message).chain(&error.causes);
    let causes: Vec<String> = causes.map(|cause| printable(cause)).collect();
    let subject = printable(&error.address.subject);
    format!("error: {subject}: {}", causes.join("\n  because: "))
}

fn list_text(list: &SubjectList) -> String {
    let subjects = if list.items.is_empty() {
        "nothing is saved in this store yet: `stasis save DIR` saves a directory".to_owned()
    } else {
        subjects_text(list)
    };
    if list.workspaces.is_empty() {
        return subjects;
    }
    [subjects, workspaces_text(&list.workspaces)].join("\n\n")
}

fn workspaces_text(rows: &[WorkspaceRow]) -> String {
    let row = |row: &WorkspaceRow| {
        let mark = match (row.is_there, &row.fork_of) {
            (false, _) => " (gone)",
            (true, Some(_)) => " (fork)",
            (true, None) => "",
        };
        vec![
            row.checkpoints.to_string(),
            format!("{}{mark}", shown_path(&row.workspace)),
        ]
    };
    let head = ["CHECKPOINTS", "WORKSPACE"];
    let mut lines = vec![table(&head, rows.iter().map(row).collect())];
    let gone = rows.iter().filter(|row| !row.is_there);
    lines.extend(gone.map(|row| {
        let (workspace, session) = (shown_path(&row.workspace), shell_word(&row.session));
        format!(
            "{workspace} is gone; where it lies now, it goes on with: stasis workspace init DIR --session-dir {}",
            printable(&session)
        )
    }));
    lines.join("\n")
}

/// A path with `~` for the home directory.
fn shown_path(path: &str) -> String {
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 1);
    let inside = home.and_then(|home| Some(Path::new(path).strip_prefix(home).ok()?.to_owned()));
    printable(&match inside {
        Some(inside) => format!("~/{}", inside.display()),
        None => path.to_owned(),
    })
}

fn subjects_text(list: &SubjectList) -> String {
    let now = system_clock().now();
    let usual = |row: &SubjectRow| row.tenant.is_default();
    let has_tenants = !list.items.iter().all(usual);
    let row = |row: &SubjectRow| {
        let place = row.dir.as_deref().map(shown_path).unwrap_or_default();
        let is_damaged = row.error.is_some();
        // Of a subject without a usable index nothing is known.
        let is_unknown = is_damaged && row.newest.is_none();
        let known = |text: String| if is_unknown { "?".to_owned() } else { text };
        let newest = row.newest_ms.map(|at| Timestamp::from_millis(at).age(now));
        let encrypted = match row.encrypted {
            Some(true) => Some("encrypted"),
            Some(false) => None,
            // Nothing is stored yet.
            None if row.snapshots == 0 && !is_damaged => None,
            None => Some("encrypted?"),
        };
        // Nobody looked at what its documents lead to.
        let damaged = is_damaged.then_some("damaged");
        let notes: Vec<&str> = [damaged, encrypted].into_iter().flatten().collect();
        let mut cells = vec![row.subject.clone()];
        cells.extend(has_tenants.then(|| row.tenant.to_string()));
        cells.extend([
            known(row.snapshots.to_string()),
            known(newest.unwrap_or_else(|| "never".to_owned())),
            known(size(row.bytes)),
            notes.join(", "),
            place,
        ]);
        cells
    };
    let mut head = vec!["SUBJECT"];
    head.extend(has_tenants.then_some("TENANT"));
    head.extend(["SNAPSHOTS", "NEWEST", "SIZE", "NOTES", "HERE"]);
    table(&head, list.items.iter().map(row).collect())
}

/// `stasis link`
#[derive(Debug, Args)]
pub(super) struct LinkArgs {
    /// A directory of this host
    dir: PathBuf,
    /// The subject that it is from now on: `dir:NAME`, as `stasis list` shows it
    subject: String,
    /// Also if the directory is another subject, whose snapshots stay in the store, or the subject another directory of this
    /// machine, which is left as it is
    #[arg(long)]
    confirm: bool,
}

impl LinkArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let engine = context.engine().await?;
        let command = LinkDir {
            dir: self.dir,
            // The tenant of every everyday command.
            tenant: TenantId::default(),
            name: self.subject,
            confirm: self.confirm,
        };
        let linked = engine.link(command).await?;
        context.output.result(&linked, linked_text)?;
        Ok(Exit::Done)
    }
}

fn linked_text(linked: &LinkedDir) -> String {
    let (dir, subject) = (printable(&linked.dir), &linked.subject);
    let is = format!("{dir} is {subject} from now on: what is saved from it joins those snapshots");
    let was = linked.was.iter().map(|was| {
        format!(
            "it was {was} before, whose snapshots stay in the store: `stasis restore {was} --to DIR` writes them to a new directory"
        )
    });
    let other = linked.instead_of.iter().map(|other| {
        let other = printable(other);
        format!("{other} was it before; it is left as it is, and is no subject any more")
    });
    let lines = [is].into_iter().chain(was).chain(other);
    lines.collect::<Vec<_>>().join("\n")
}

/// `stasis repair`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(super) struct RepairArgs {
    /// A directory, `dir:NAME`, or `profile:TENANT/PROFILE@MAJOR`
    #[arg(required_unless_present = "all")]
    subject: Option<String>,
    /// The tenant of a directory
    #[arg(long, value_name = "TENANT", default_value = "default")]
    tenant: TenantId,
    /// Really do it; without, it only says what would be done
    #[arg(long, conflicts_with = "accept_rollback")]
    confirm: bool,
    /// Leave out snapshots that cannot be proven to come back; the next gc removes them
    #[arg(long, requires = "confirm")]
    leave_out: bool,
    /// Go on from a store that went back to an earlier state, as one does that was restored from a backup
    #[arg(long)]
    accept_rollback: bool,
    /// Every subject of the store; only with `--accept-rollback`
    #[arg(long, requires = "accept_rollback", conflicts_with_all = ["subject", "confirm"])]
    all: bool,
}

/// What a command repairs.
enum Repaired {
    Directory(Box<Project>),
    Profile(Box<Engine>, Lineage),
}

impl RepairArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let actor: Label = "operator".parse()?;
        let Some(subject) = &self.subject else {
            let engine = context.engine().await?;
            let accepted = engine.accept_rollback_of_all(&actor).await?;
            context.output.result(&accepted, accepted_text)?;
            return Ok(Exit::Done);
        };
        if self.accept_rollback {
            let accepted = accepted(context, subject, &self.tenant, &actor).await?;
            context.output.result(&accepted, accepted_text)?;
            return Ok(Exit::Done);
        }
        let repaired = repaired(context, subject, &self.tenant).await?;
        let mut repair = match (&repaired, self.confirm) {
            (Repaired::Directory(project), true) => project.repair(&actor, self.leave_out).await?,
            (Repaired::Directory(project), false) => project.plan_repair().await?,
            (Repaired::Profile(engine, lineage), true) => {
                engine.profiles().repair(lineage, &actor).await?
            }
            (Repaired::Profile(engine, lineage), false) => {
                engine.profiles().plan_repair(lineage).await?
            }
        };
        // As it is typed, not as it lies in the store.
        repair.subject = repaired.subject();
        let hints = DamageHints {
            store: repaired.own_store(context)?,
            has_marked: false,
        };
        if !self.confirm && !repair.documents.is_empty() {
            context.output.insist(&repair_text(&repair, &hints));
            context.output.warn(&repair.warnings);
            bail!("nothing was changed: say --confirm to make these documents anew");
        }
        context
            .output
            .result(&repair, |repair| repair_text(repair, &hints))?;
        context.output.warn(&repair.warnings);
        if !repair.remaining.is_empty() {
            return Ok(Exit::Corrupt);
        }
        Ok(repair.unchecked().map_or(Exit::Done, exit_of))
    }
}

impl Repaired {
    fn subject(&self) -> String {
        match self {
            Self::Directory(project) => project::typed_subject(project.home()),
            Self::Profile(_, lineage) => format!("{PROFILE_PREFIX}{lineage}"),
        }
    }

    /// The store of the subject, if a command would not find it by itself: a project may have one of its own.
    fn own_store(&self, context: &CliContext) -> anyhow::Result<Option<String>> {
        let location = match self {
            Self::Directory(project) => project.location(),
            Self::Profile(engine, _) => engine.location(),
        };
        let is_usual = *location == context.location()?;
        Ok((!is_usual).then(|| location.to_string()))
    }
}

async fn repaired(
    context: &CliContext,
    subject: &str,
    tenant: &TenantId,
) -> anyhow::Result<Repaired> {
    let Some(profile) = subject.strip_prefix(PROFILE_PREFIX) else {
        let project = project::named_of(context, Path::new(subject), tenant).await?;
        return Ok(Repaired::Directory(Box::new(project)));
    };
    let engine = context.engine().await?;
    let profile: ProfileRef = profile.parse()?;
    let lineage = engine.profiles().one_lineage(&profile).await?;
    Ok(Repaired::Profile(Box::new(engine), lineage))
}

/// What is accepted need not be in the store any more: that is why it must be named in full.
async fn accepted(
    context: &CliContext,
    subject: &str,
    tenant: &TenantId,
    actor: &Label,
) -> anyhow::Result<AcceptedRollback> {
    if subject.starts_with(DIR_PREFIX) {
        let engine = context.engine().await?;
        let accepted = engine.accept_rollback_of_directory(tenant, subject, actor);
        return Ok(accepted.await?);
    }
    let lineage = subject.strip_prefix(PROFILE_PREFIX).map(str::parse);
    if let Some(Ok(lineage)) = lineage {
        let engine = context.engine().await?;
        return Ok(engine.profiles().accept_rollback(&lineage, actor).await?);
    }
    Ok(match repaired(context, subject, tenant).await? {
        Repaired::Directory(project) => project.accept_rollback(actor).await?,
        Repaired::Profile(engine, lineage) => {
            engine.profiles().accept_rollback(&lineage, actor).await?
        }
    })
}

fn accepted_text(accepted: &AcceptedRollback) -> String {
    match &accepted.subjects[..] {
        [] => "nothing to accept: this host has seen no later state".to_owned(),
        subjects => format!("goes on from what the store has: {}", subjects.join(", ")),
    }
}

fn repair_text(repair: &Repair, hints: &DamageHints) -> String {
    if repair.documents.is_empty() && repair.remaining.is_empty() {
        return format!(
            "nothing to repair: every document of {} can be read",
            repair.subject
        );
    }
    let (make, lead, leave) = match repair.op_id {
        Some(_) => ("made", "leads", "left"),
        None => ("would make", "would lead", "would leave"),
    };
    let documents = repair.documents.iter().map(|one| {
        let kept = one.kept.as_ref();
        let kept = kept.map(|kept| format!("; what was there is kept in {kept}"));
        let why = printable(&one.why);
        format!(
            "{make} {} anew ({why}){}",
            one.document,
            kept.unwrap_or_default()
        )
    });
    let mut lines: Vec<String> = documents.collect();
    if repair.latest.is_some() || !repair.snapshots.is_empty() {
        let latest = repair.latest.as_deref().unwrap_or("none");
        let count = plural(repair.snapshots.len() as u64, "snapshot");
        lines.push(format!("it {lead} to {count}; latest is {latest}"));
    }
    let left = repair.left_out.iter();
    lines.extend(left.map(|one| format!("{leave} out {}: {}", one.snapshot, printable(&one.why))));
    let remaining = &repair.remaining;
    if !remaining.is_empty() {
        lines.extend(remaining.iter().map(damage::text));
        let problems = plural(remaining.len() as u64, "problem");
        lines.push(format!(
            "NOT REPAIRED: {problems} that no new document helps against"
        ));
        lines.extend(hints.against(remaining.iter().map(Ailment::from)));
    }
    lines.join("\n")
}
