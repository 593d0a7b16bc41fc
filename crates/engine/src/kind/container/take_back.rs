//! Brings a container back whose replacement failed or was interrupted.

use super::fill::Filling;
use super::find::FoundSnapshot;
use super::image::{BY_LABEL, HELPER_LABEL, POOL_LABEL, RESTORE_LABEL, SUBJECT_LABEL};
use super::made::MadeBy;
use super::names::is_copy;
use super::replace_journal::ReplaceJournal;
use super::replaceable::users_of_bind;
use super::restore_request::STOP_TIMEOUT;
use super::volumes::VolumePlace;
use super::{ContainerHost, SeenEngine};
use super::{failure, tenant_option};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use stasis_model::container::mount::ContainerMountKind;
use stasis_model::container::status::ContainerStatus;
use stasis_model::id::{ContainerSubject, SnapshotId, TenantId};
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_quiesce::docker::{ContainerFacts, ListedContainer, VolumeRemoval};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// What was interrupted longer ago may be in use by now.
const IN_USE: Duration = Duration::from_mins(10);

/// Whether an interrupted replacement is brought to its end if the new container runs and works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Forward {
    /// It is: somebody may use it by now.
    IfItWorks,
    /// The one that there was comes back.
    Never,
}

/// What became of a replacement that did not end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TakenBack {
    /// There was none.
    Nothing,
    /// The container that there was is there again.
    Back,
    /// The new one works, and is kept; why the old one is still there, if it is.
    Forward(Option<String>),
    /// Somebody removed the container meanwhile; what it was is in this snapshot, if there was one already.
    Gone(Option<SnapshotId>, TenantId),
}

impl TakenBack {
    /// Says that somebody removed the container.
    pub(super) fn gone(name: &str, safety: Option<&SnapshotId>, tenant: &TenantId) -> String {
        let option = tenant_option(tenant);
        let Some(safety) = safety else {
            return format!(
                "the container `{name}` was removed by somebody else before it was replaced, and nothing of it was saved for that; its volumes are what they were"
            );
        };
        format!(
            "the container `{name}` was removed by somebody else while it was replaced; what it was is in the snapshot {safety}: `stasis container restore {safety} --name {name}{option}`"
        )
    }
}

impl Containers<'_> {
    /// Brings a container back; ends a replacement that only lacked its last step. Whoever calls it has the container for himself.
    pub(super) async fn take_back(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        name: &str,
        forward: Forward,
    ) -> Result<TakenBack, Error> {
        let path = self.journal_path(seen, name).await?;
        let Some(mut journal) = ReplaceJournal::read(&path).await? else {
            return Ok(TakenBack::Nothing);
        };
        journal.ensure_of_store(&self.location.to_string())?;
        let host = &ContainerHost {
            tenant: journal.tenant.clone(),
            ..host.clone()
        };
        let is_asked = forward == Forward::IfItWorks && !journal.is_done;
        if is_asked && self.works(seen, &journal).await? {
            journal.is_done = true;
            journal.write(&path).await?;
        }
        if journal.is_done {
            let finished = self.finish(seen, &path, &journal).await;
            let left = finished.err().map(|error| left_aside(&journal, &error));
            return Ok(TakenBack::Forward(left));
        }
        if forward == Forward::IfItWorks {
            self.ensure_unused(seen, &path, &journal).await?;
        }
        let safety = if journal.is_filling {
            let safety = self.safety(host, seen, &journal).await?;
            self.ensure_nobody_uses(seen, &journal, &safety).await?;
            Some(safety)
        } else {
            None
        };
        let old = seen.docker.container(&journal.container_id).await?;
        // As long as one has a volume mounted, that cannot go.
        self.discard_helpers(seen, &journal).await;
        remove_new(seen, &journal).await?;
        if let Some(old) = &old
            && old.status.is_alive()
        {
            // An engine that was asked to stop it does so, though nobody waits for that any more.
            let longest = old.stop_timeout().unwrap_or(STOP_TIMEOUT);
            seen.docker.stop_container(&old.id, longest).await?;
        }
        if let Some(safety) = &safety {
            Box::pin(safety.fill_back(seen)).await?;
        }
        let is_there = old.is_some();
        if let Some(old) = old {
            set_going(seen, &journal, &old).await?;
        }
        if !is_there {
            let safety = match self.safety(host, seen, &journal).await {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                found => Some(found?.id),
            };
            ReplaceJournal::remove(&path).await?;
            let tenant = &journal.tenant;
            return Ok(TakenBack::Gone(safety, tenant.clone()));
        }
        ReplaceJournal::remove(&path).await?;
        self.forget_safety(host, seen, &journal).await;
        Ok(TakenBack::Back)
    }

    /// The same as far as it can be done: the container comes back all the same, also while the store is away.
    async fn discard_helpers(self, seen: &SeenEngine, journal: &ReplaceJournal) {
        if let Err(error) = self.remove_helpers(seen, journal).await {
            let error = error_chain(&error);
            tracing::warn!(
                error,
                "a container that was never started is left to a cleanup"
            );
        }
    }

    /// Removes containers that were never started, and through which volumes were read or written for it.
    async fn remove_helpers(
        self,
        seen: &SeenEngine,
        journal: &ReplaceJournal,
    ) -> Result<(), Error> {
        let Some(pool) = self.pool(&journal.tenant).await? else {
            return Ok(());
        };
        let subject = ContainerSubject::new(&journal.container_name, &seen.digits);
        let wanted = [
            (SUBJECT_LABEL, subject.to_string()),
            (BY_LABEL, self.by().await?),
        ];
        let label = format!("{HELPER_LABEL}={pool}");
        for helper in seen.docker.containers_labelled(&label).await? {
            let mut labels = wanted.iter();
            let is_ours = labels.all(|(name, value)| helper.labels.get(*name) == Some(value));
            if is_ours && !helper.status.is_alive() {
                let docker = &seen.docker;
                let removed = docker.remove_container(&helper.id, VolumeRemoval::Anonymous);
                removed.await?;
            }
        }
        Ok(())
    }

    /// The snapshot of what is replaced.
    async fn safety(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        journal: &ReplaceJournal,
    ) -> Result<FoundSnapshot, Error> {
        let wanted = SnapshotRef::Text(journal.safety.to_string());
        let (here, name) = (Some(seen.digits.as_str()), &journal.container_name);
        let tenant = &host.tenant;
        self.snapshot(tenant, &wanted, Some(name), here).await
    }

    /// Lets go of the snapshot of what is back: an undo would take it for something that was replaced.
    async fn forget_safety(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        journal: &ReplaceJournal,
    ) {
        let safety = &journal.safety;
        let forgotten = async {
            let found = match self.safety(host, seen, journal).await {
                // It was never made.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                found => found?,
            };
            let ids = std::slice::from_ref(safety);
            let _ = self.remove(&found.of, ids, Some(seen)).await?;
            Ok::<_, Error>(())
        };
        if let Err(error) = forgotten.await {
            let error = error_chain(&error);
            tracing::info!(%safety, error, "a snapshot that nobody needs is left to a cleanup");
        }
    }

    /// Brings back a container that is not there under its name because its replacement was interrupted.
    pub(super) async fn take_back_named(
        self,
        host: &ContainerHost,
        seen: &SeenEngine,
        name: &str,
    ) -> Result<(), Error> {
        if !self.interrupted(seen).await?.iter().any(|one| one == name) {
            return Ok(());
        }
        let _lock = self.lock(seen, name, "brought back").await?;
        let back = self.take_back(host, seen, name, Forward::IfItWorks);
        match Box::pin(back).await? {
            TakenBack::Gone(safety, tenant) => {
                let said = TakenBack::gone(name, safety.as_ref(), &tenant);
                Err(failure(ErrorKind::NotFound, said).into())
            }
            TakenBack::Nothing | TakenBack::Back | TakenBack::Forward(_) => Ok(()),
        }
    }

    /// Whether the container that was made runs under its name and works: then somebody may use it by now.
    async fn works(self, seen: &SeenEngine, journal: &ReplaceJournal) -> Result<bool, Error> {
        let made = MadeBy {
            op_id: journal.op_id,
            name: &journal.container_name,
        };
        let new = made.container(seen).await?;
        let is_new = |one: &ListedContainer| {
            one.id != journal.container_id && one.status == ContainerStatus::Running
        };
        let Some(new) = new.filter(is_new) else {
            return Ok(false);
        };
        let health = journal.health.health();
        match seen.docker.wait_healthy(&new.id, &health).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Failed => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses to throw away what somebody may have worked with: a new container that was started long ago, or the old one, started
    /// by hand after its volumes had been written to.
    async fn ensure_unused(
        self,
        seen: &SeenEngine,
        path: &Path,
        journal: &ReplaceJournal,
    ) -> Result<(), Error> {
        let (name, aside) = (&journal.container_name, &journal.aside);
        let old = seen.docker.container(&journal.container_id).await?;
        if journal.is_filling && old.is_some_and(|old| old.status.is_alive()) {
            let said = format!(
                "the replacement of `{name}` was interrupted while its volumes were written, and somebody has started `{aside}` since: nothing was changed"
            );
            let hint = format!(
                "`docker stop {aside}`, then `stasis container cleanup` makes it what it was, as the snapshot {} has it",
                journal.safety
            );
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        }
        let made = MadeBy {
            op_id: journal.op_id,
            name,
        };
        let new = made.container(seen).await?;
        let new = new.filter(|new| new.id != journal.container_id);
        let was_started = new.is_some_and(|new| new.status != ContainerStatus::Created);
        let written = path.to_owned();
        let written = bridge::blocking(move || {
            let modified = written.metadata().and_then(|found| found.modified()).ok()?;
            modified.duration_since(std::time::UNIX_EPOCH).ok()
        });
        let written = written.await.unwrap_or_default();
        let now = Duration::from_millis(self.clock.now().millis());
        if was_started && now.saturating_sub(written) > IN_USE {
            let said = format!(
                "the replacement of `{name}` was interrupted long ago, and the new container has run since and does not work now: nothing was changed"
            );
            let hint = format!(
                "`docker start {name}`, then `stasis container cleanup` keeps it; `docker rm -f {name}`, then `stasis container cleanup` brings the old one back"
            );
            return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
        }
        Ok(())
    }

    /// Refuses to write volumes that somebody else uses by now.
    async fn ensure_nobody_uses(
        self,
        seen: &SeenEngine,
        journal: &ReplaceJournal,
        safety: &FoundSnapshot,
    ) -> Result<(), Error> {
        let ours = |one: &str, labels: &BTreeMap<String, String>| {
            let op_id = labels.get(RESTORE_LABEL);
            one == journal.container_id || op_id == Some(&journal.op_id.to_string())
        };
        for volume in &safety.container.volumes {
            let users = match volume.kind {
                ContainerMountKind::Bind => users_of_bind(seen, &volume.name).await?,
                _ => seen.docker.containers_with_volume(&volume.name).await?,
            };
            let mut others = users.iter().filter(|one| one.status.is_alive());
            if let Some(other) = others.find(|one| !ours(&one.id, &one.labels)) {
                let said = format!(
                    "the replacement of `{}` was interrupted while its volumes were written, and `{}` runs with `{}` by now: nothing was changed",
                    journal.container_name, other.name, volume.name
                );
                let hint = format!(
                    "stop it, and run `stasis container cleanup`; what there was is in the snapshot {}",
                    journal.safety
                );
                return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
            }
        }
        Ok(())
    }

    /// Removes the container that was replaced, and volumes that only it had and that an earlier restore made for it: the snapshot of what
    /// was replaced has them. As long as that fails, what was written down stays, and the next cleanup tries it again.
    pub(super) async fn finish(
        self,
        seen: &SeenEngine,
        path: &Path,
        journal: &ReplaceJournal,
    ) -> Result<(), Error> {
        let old = &journal.container_id;
        let facts = seen.docker.container(old).await?;
        if facts.is_none() {
            remove_copies(seen, &journal.copies).await?;
        }
        // Somebody went back to it by hand: it is his, and not ours to remove.
        let Some(facts) = facts.filter(|facts| facts.name == journal.aside) else {
            return ReplaceJournal::remove(path).await;
        };
        let is_used = !journal.started.is_empty() && facts.started != journal.started;
        let copies = if is_used {
            Vec::new()
        } else {
            self.copies_of(seen, journal, &facts).await?
        };
        if copies != journal.copies {
            // Without the container nobody could tell any more which they are.
            let noted = ReplaceJournal {
                copies: copies.clone(),
                ..journal.clone()
            };
            noted.write(path).await?;
        }
        if is_used {
            let aside = &journal.aside;
            let said = "somebody has started it since, and may have worked with it";
            let hint = format!(
                "if nobody needs it: `docker rm -f {aside}`, then `stasis container cleanup`"
            );
            let failure = failure(ErrorKind::Conflict, format!("{said}; {hint}"));
            return Err(failure.into());
        }
        let removed = seen.docker.remove_container(old, VolumeRemoval::Keep);
        removed.await?;
        remove_copies(seen, &copies).await?;
        ReplaceJournal::remove(path).await
    }

    /// The volumes of a container that the very restore made that made it, and that were not there before.
    async fn copies_of(
        self,
        seen: &SeenEngine,
        journal: &ReplaceJournal,
        facts: &ContainerFacts,
    ) -> Result<Vec<String>, Error> {
        let pool = self.pool(&journal.tenant).await?;
        let pool = pool.map(|pool| pool.to_string());
        let made_by = facts.config["Labels"][RESTORE_LABEL].as_str();
        let mut copies = Vec::new();
        for name in facts.mounts.iter().filter_map(|one| one.volume.as_ref()) {
            let volume = seen.docker.volume(name).await?;
            let is_ours = volume.is_some_and(|one| {
                let op_id = one.labels.get(RESTORE_LABEL).map(String::as_str);
                op_id.is_some()
                    && op_id == made_by
                    && one.labels.get(POOL_LABEL) == pool.as_ref()
                    && is_copy(&one.name)
            });
            // The new container has it, too, where it was filled in place.
            let users = seen.docker.containers_with_volume(name);
            if is_ours && users.await?.iter().all(|one| one.id == facts.id) {
                copies.push(name.clone());
            }
        }
        Ok(copies)
    }
}

impl FoundSnapshot {
    /// Makes volumes what they were before.
    async fn fill_back(&self, seen: &SeenEngine) -> Result<(), Error> {
        for volume in &self.container.volumes {
            // What only the engine can write was not written.
            if let VolumePlace::Directory(directory) =
                seen.place_of_captured(volume, &volume.labels).await?
            {
                self.fill(volume, &directory, &Filling::default()).await?;
            }
        }
        Ok(())
    }
}

/// Removes volumes that only the container had that was replaced.
async fn remove_copies(seen: &SeenEngine, copies: &[String]) -> Result<(), Error> {
    for name in copies {
        // Somebody has it mounted.
        if let Err(error) = seen.docker.remove_volume(name).await
            && error.kind() != ErrorKind::Conflict
        {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Says that the container that was replaced could not be removed.
fn left_aside(journal: &ReplaceJournal, error: &Error) -> String {
    let (aside, error) = (&journal.aside, error_chain(error));
    format!("what was replaced before, `{aside}`, could not be removed: {error}")
}

/// Removes what was made in vain.
async fn remove_new(seen: &SeenEngine, journal: &ReplaceJournal) -> Result<(), Error> {
    let made = MadeBy {
        op_id: journal.op_id,
        name: &journal.container_name,
    };
    made.remove_container(seen, Some(&journal.container_id))
        .await?;
    // What of it cannot go stands in nobody's way.
    let (_, left) = made.remove_rest(seen, false).await?;
    for error in left {
        tracing::warn!(error, "something that a restore made is left");
    }
    Ok(())
}

/// Gives the container that there was its name back, and has it do what it did.
async fn set_going(
    seen: &SeenEngine,
    journal: &ReplaceJournal,
    old: &ContainerFacts,
) -> Result<(), Error> {
    let docker = &seen.docker;
    if old.name == journal.aside {
        docker
            .rename_container(&old.id, &journal.container_name)
            .await?;
    }
    docker
        .set_restart_policy(&old.id, &journal.restart_policy)
        .await?;
    if journal.was.is_alive() {
        docker.start_container(&old.id).await?;
    }
    if journal.was == ContainerStatus::Paused {
        docker.pause_container(&old.id).await?;
    }
    Ok(())
}
