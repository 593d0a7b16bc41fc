//! Which container, and which snapshot of it, somebody means.

use super::failure;
use crate::catalog::OpenedSnapshot;
use crate::catalog::references::is_damage;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use crate::kind::project::{self, Home, Project};
use crate::near::did_you_mean;
use crate::open::Engine;
use crate::system::typed_at;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use stasis_model::format::manifest::{ContainerManifest, SaveReason, SnapshotIndex};
use stasis_model::id::{ContainerSubject, SnapshotId, SubjectName, TenantId};
use stasis_model::nearest::nearest;
use stasis_model::snapshot_ref::{SnapshotRef, Unresolved};
use stasis_model::subject_ref::CONTAINER_PREFIX;
use stasis_store::documents::containers::containers;
use stasis_store::documents::roots::Root;
use stasis_store::part::Part;

/// How many indexes are read at once.
const READS_IN_FLIGHT: usize = 16;

/// A container of which there are snapshots.
#[derive(Debug)]
pub(super) struct FoundContainer {
    pub(super) tenant: TenantId,
    pub(super) subject: ContainerSubject,
    /// The engine of its snapshots.
    pub(super) engine: Engine,
    pub(super) index: SnapshotIndex,
}

/// A container whose documents cannot be read: it is named wherever others are listed, and nothing of it is ever removed.
#[derive(Debug)]
pub(super) struct UnreadableContainer {
    pub(super) tenant: TenantId,
    pub(super) subject: ContainerSubject,
    /// The engine of its snapshots.
    pub(super) engine: Engine,
    /// What is wrong with it.
    pub(super) error: Error,
}

impl UnreadableContainer {
    /// The same as one line.
    pub(super) fn line(&self) -> String {
        format!("{}: {}", typed(&self.subject), error_chain(&self.error))
    }
}

/// All containers of a tenant, or of all.
#[derive(Debug, Default)]
pub(super) struct FoundContainers {
    pub(super) readable: Vec<FoundContainer>,
    pub(super) unreadable: Vec<UnreadableContainer>,
}

impl FoundContainers {
    /// A line for each that cannot be read.
    pub(super) fn unreadable_lines(&self) -> Vec<String> {
        let all = self.unreadable.iter();
        all.map(UnreadableContainer::line).collect()
    }
}

/// A container that may not be readable.
type LookedAt = Result<FoundContainer, Box<UnreadableContainer>>;

/// One snapshot of a container, read.
#[derive(Debug)]
pub(super) struct FoundSnapshot {
    pub(super) of: FoundContainer,
    pub(super) id: SnapshotId,
    pub(super) opened: OpenedSnapshot,
    pub(super) container: ContainerManifest,
}

impl FoundContainer {
    pub(super) fn root(&self) -> Root {
        self.engine.dirs().root()
    }

    /// Reads a snapshot of it.
    pub(super) async fn open(&self, id: &SnapshotId) -> Result<OpenedSnapshot, Error> {
        let dirs = self.engine.dirs();
        dirs.open_snapshot(&dirs.root(), &self.index, id).await
    }
}

/// What a container is called among the subjects of its tenant.
pub(super) fn subject_name(subject: &ContainerSubject) -> SubjectName {
    let name = subject.as_str().parse();
    name.expect("the names of containers and of subjects follow one rule")
}

/// A container as it is typed; that of another engine with that.
pub(super) fn typed(subject: &ContainerSubject) -> String {
    format!("{CONTAINER_PREFIX}{}", subject.container())
}

impl Containers<'_> {
    /// All containers of a tenant, or of all, of which there are snapshots. One that cannot be read hides no other.
    pub(super) async fn found(self, tenant: Option<&TenantId>) -> Result<FoundContainers, Error> {
        let named = containers(&*self.bucket, tenant, &Part::Whole).await?;
        self.found_of(named).await
    }

    /// The same of those that are called so.
    pub(super) async fn found_of(
        self,
        named: Vec<(TenantId, ContainerSubject)>,
    ) -> Result<FoundContainers, Error> {
        let mut all = FoundContainers::default();
        let looks = stream::iter(named).map(|(tenant, subject)| self.look_at(tenant, subject));
        let mut looks = looks.buffered(READS_IN_FLIGHT);
        while let Some(looked) = looks.try_next().await? {
            match looked {
                Some(Ok(one)) => all.readable.push(one),
                Some(Err(one)) => all.unreadable.push(*one),
                None => {}
            }
        }
        Ok(all)
    }

    /// Reads the index of a container; nothing if the container was deleted.
    async fn look_at(
        self,
        tenant: TenantId,
        subject: ContainerSubject,
    ) -> Result<Option<LookedAt>, Error> {
        let engine = self.of(&tenant, &subject);
        match engine.dirs().index_to_look().await {
            Ok(index) if index.deleted_at_ms.is_some() => Ok(None),
            Ok(index) => Ok(Some(Ok(FoundContainer {
                tenant,
                subject,
                engine,
                index,
            }))),
            Err(error) if is_damage(&error) => Ok(Some(Err(Box::new(UnreadableContainer {
                tenant,
                subject,
                engine,
                error,
            })))),
            Err(error) => Err(error),
        }
    }

    /// The container that is called so; where several engines have one, that of the engine that one works with.
    pub(super) async fn called(
        self,
        tenant: &TenantId,
        name: &str,
        here: Option<&str>,
    ) -> Result<FoundContainer, Error> {
        let found = self.called_or_unreadable(tenant, name, here).await?;
        found.map_err(|one| one.error)
    }

    /// The same, be it readable or not. The indexes of others are not looked at.
    async fn called_or_unreadable(
        self,
        tenant: &TenantId,
        name: &str,
        here: Option<&str>,
    ) -> Result<LookedAt, Error> {
        let name = name.strip_prefix(CONTAINER_PREFIX).unwrap_or(name);
        let subjects = containers(&*self.bucket, Some(tenant), &Part::Whole).await?;
        let is_here = |subject: &ContainerSubject| Some(subject.engine()) == here;
        let mut fits = Vec::new();
        for (tenant, subject) in &subjects {
            if subject.is_called(name) {
                let one = self.look_at(tenant.clone(), subject.clone()).await?;
                fits.extend(one.map(|one| (subject, one)));
            }
        }
        if fits.len() > 1 && fits.iter().any(|(subject, _)| is_here(subject)) {
            fits.retain(|(subject, _)| is_here(subject));
        }
        if fits.len() > 1 {
            let said = format!("{} engines have a container `{name}`", fits.len());
            let which = fits
                .iter()
                .map(|(one, _)| format!("{CONTAINER_PREFIX}{one}"));
            let hint = format!("say which: {}", which.collect::<Vec<_>>().join(", "));
            return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
        }
        let Some((_, one)) = fits.pop() else {
            let said = format!(
                "nothing is saved of a container `{name}` in `{}`",
                self.location
            );
            let names = subjects.iter();
            let names = names.map(|(_, one)| (one.container().to_owned(), typed(one)));
            let near = did_you_mean(&nearest(name, names));
            let near = near.map(|near| near + " ").unwrap_or_default();
            let hint = format!("{near}`stasis container create {name}` saves it");
            return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
        };
        Ok(one)
    }

    /// The snapshot that is meant: of a container, or of any if it is named by its id or a label.
    pub(super) async fn snapshot(
        self,
        tenant: &TenantId,
        wanted: &SnapshotRef,
        of: Option<&str>,
        here: Option<&str>,
    ) -> Result<FoundSnapshot, Error> {
        let found = match of {
            Some(of) => match self.called(tenant, of, here).await {
                Err(error) => return Err(self.not_yet(wanted).await.unwrap_or(error)),
                found => FoundContainers {
                    readable: vec![found?],
                    unreadable: Vec::new(),
                },
            },
            None if matches!(wanted, SnapshotRef::Text(_)) => self.found(Some(tenant)).await?,
            None => {
                let said = format!("`{wanted}` is a snapshot of which container?");
                let hint = format!("name it: `stasis container restore {wanted} CONTAINER`");
                return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
            }
        };
        let FoundContainers {
            readable: among,
            unreadable,
        } = found;
        let typed = typed_at(&*self.clock);
        let mut fits = Vec::new();
        for (at, one) in among.iter().enumerate() {
            match one.index.resolve(wanted, typed) {
                Ok(found) => fits.push((at, found.id.clone())),
                Err(Unresolved::Ambiguous(several)) => {
                    fits.extend(several.iter().map(|found| (at, found.id.clone())));
                }
                Err(_) => {}
            }
        }
        let (at, id) = match &fits[..] {
            // What a label or a beginning names may also be one of a container whose index cannot be read.
            [(_, id)] if !unreadable.is_empty() && id.as_str() != wanted.to_string() => {
                return Err(not_among_readable(wanted, &unreadable[0]));
            }
            [(at, id)] => (*at, id.clone()),
            [] => {
                return Err(match unreadable.first() {
                    Some(one) => not_among_readable(wanted, one),
                    None => self.no_snapshot(wanted, of).await,
                });
            }
            several => {
                return Err(Error::Ambiguous {
                    wanted: wanted.to_string(),
                    count: several.len(),
                });
            }
        };
        let of = among.into_iter().nth(at);
        match of {
            Some(of) => of.read(id).await,
            None => Err(self.no_snapshot(wanted, None).await),
        }
    }

    async fn no_snapshot(self, wanted: &SnapshotRef, of: Option<&str>) -> Error {
        if let Some(why) = self.not_yet(wanted).await {
            return why;
        }
        let of = of.map(|of| format!(" of `{of}`")).unwrap_or_default();
        let said = format!("there is no snapshot `{wanted}`{of} in `{}`", self.location);
        let hint = "`stasis container list` shows those that there are";
        failure(ErrorKind::NotFound, said).with_hint(hint).into()
    }
}

/// It may be one of a container whose index cannot be read.
fn not_among_readable(wanted: &SnapshotRef, unreadable: &UnreadableContainer) -> Error {
    let subject = typed(&unreadable.subject);
    let said = format!(
        "which snapshot `{wanted}` is cannot be told, because the documents of `{subject}` cannot be read: {}",
        error_chain(&unreadable.error)
    );
    let hint = format!(
        "name the container or the whole id; `stasis repair {subject}` shows what can be made anew"
    );
    failure(ErrorKind::Corrupt, said).with_hint(hint).into()
}

impl FoundContainer {
    /// Reads a snapshot that is one of a container.
    pub(super) async fn read(self, id: SnapshotId) -> Result<FoundSnapshot, Error> {
        let opened = self.open(&id).await?;
        let Some(container) = opened.manifest.container.clone() else {
            let said = format!("snapshot `{id}` does not say of which container it is");
            return Err(failure(ErrorKind::Corrupt, said).into());
        };
        Ok(FoundSnapshot {
            of: self,
            id,
            opened,
            container: *container,
        })
    }
}

impl Engine {
    /// A container whose snapshots are looked at like those of a directory. Its index may be damaged: that is what a check and a repair
    /// are for.
    pub async fn container_directory(
        &self,
        host: &super::ContainerHost,
        name: &str,
        project: project::Host,
    ) -> Result<Project, Error> {
        // Where the engine does not answer, a name that only one engine has is clear all the same.
        let here = host.look().await.ok().map(|seen| seen.digits);
        let found = self.containers();
        let found = found.called_or_unreadable(&host.tenant, name, here.as_deref());
        let (engine, subject) = match found.await? {
            Ok(one) => (one.engine, one.subject),
            Err(one) => (one.engine, one.subject),
        };
        Ok(Project {
            engine,
            home: Home::of_container(subject),
            host: project,
        })
    }
}

impl Containers<'_> {
    /// The snapshot of what the last replacement of a container replaced.
    pub async fn last_replaced(
        self,
        host: &super::ContainerHost,
        name: &str,
    ) -> Result<SnapshotRef, Error> {
        let seen = host.look().await?;
        let here = Some(seen.digits.as_str());
        let found = self.called(&host.tenant, name, here).await?;
        let mut all = found.index.finished();
        let last = all.rfind(|one| one.reason == SaveReason::BeforeRestore);
        let Some(last) = last else {
            let said = format!(
                "`{}` was not replaced, or that is no longer kept",
                typed(&found.subject)
            );
            let hint =
                "a container that was made beside another one is simply removed: `docker rm`";
            return Err(failure(ErrorKind::NotFound, said).with_hint(hint).into());
        };
        Ok(SnapshotRef::Text(last.id.to_string()))
    }
}
