//! Which container, and which snapshot of it, somebody means.

use super::failure;
use crate::catalog::OpenedSnapshot;
use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use crate::kind::project::{self, Home, Project};
use crate::near::did_you_mean;
use crate::open::Engine;
use crate::system::typed_at;
use stasis_model::format::manifest::{ContainerManifest, SaveReason, SnapshotIndex};
use stasis_model::id::{ContainerSubject, SnapshotId, SubjectName, TenantId};
use stasis_model::nearest::nearest;
use stasis_model::snapshot_ref::{SnapshotRef, Unresolved};
use stasis_model::subject_ref::CONTAINER_PREFIX;
use stasis_store::documents::containers::containers;
use stasis_store::documents::roots::Root;

/// A container of which there are snapshots.
#[derive(Debug)]
pub(super) struct FoundContainer {
    pub(super) tenant: TenantId,
    pub(super) subject: ContainerSubject,
    /// The engine of its snapshots.
    pub(super) engine: Engine,
    pub(super) index: SnapshotIndex,
}

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
    /// All containers of a tenant, or of all, of which there are snapshots.
    pub(super) async fn found(
        self,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<FoundContainer>, Error> {
        let mut all = Vec::new();
        for (tenant, subject) in containers(&*self.bucket, tenant).await? {
            let engine = self.of(&tenant, &subject);
            let index = engine.dirs().index_to_look().await?;
            if index.deleted_at_ms.is_none() {
                all.push(FoundContainer {
                    tenant,
                    subject,
                    engine,
                    index,
                });
            }
        }
        Ok(all)
    }

    /// The container that is called so; where several engines have one, that of the engine that one works with.
    pub(super) async fn called(
        self,
        tenant: &TenantId,
        name: &str,
        here: Option<&str>,
    ) -> Result<FoundContainer, Error> {
        let name = name.strip_prefix(CONTAINER_PREFIX).unwrap_or(name);
        let mut all = self.found(Some(tenant)).await?;
        let names: Vec<(String, String)> = all
            .iter()
            .map(|one| (one.subject.container().to_owned(), typed(&one.subject)))
            .collect();
        all.retain(|one| one.subject.is_called(name));
        if all.len() > 1 && all.iter().any(|one| Some(one.subject.engine()) == here) {
            all.retain(|one| Some(one.subject.engine()) == here);
        }
        if all.len() > 1 {
            let said = format!("{} engines have a container `{name}`", all.len());
            let which: Vec<String> = all
                .iter()
                .map(|one| format!("{CONTAINER_PREFIX}{}", one.subject))
                .collect();
            let hint = format!("say which: {}", which.join(", "));
            return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
        }
        all.pop().ok_or_else(|| {
            let said = format!(
                "nothing is saved of a container `{name}` in `{}`",
                self.location
            );
            let near = did_you_mean(&nearest(name, names));
            let near = near.map(|near| near + " ").unwrap_or_default();
            let hint = format!("{near}`stasis container create {name}` saves it");
            failure(ErrorKind::NotFound, said).with_hint(hint).into()
        })
    }

    /// The snapshot that is meant: of a container, or of any if it is named by its id or a label.
    pub(super) async fn snapshot(
        self,
        tenant: &TenantId,
        wanted: &SnapshotRef,
        of: Option<&str>,
        here: Option<&str>,
    ) -> Result<FoundSnapshot, Error> {
        let among = match of {
            Some(of) => match self.called(tenant, of, here).await {
                Err(error) => return Err(self.not_yet(wanted).await.unwrap_or(error)),
                found => vec![found?],
            },
            None if matches!(wanted, SnapshotRef::Text(_)) => self.found(Some(tenant)).await?,
            None => {
                let said = format!("`{wanted}` is a snapshot of which container?");
                let hint = format!("name it: `stasis container restore {wanted} CONTAINER`");
                return Err(failure(ErrorKind::Invalid, said).with_hint(hint).into());
            }
        };
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
            [(at, id)] => (*at, id.clone()),
            [] => return Err(self.no_snapshot(wanted, of).await),
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
    /// A container whose snapshots are looked at like those of a directory.
    pub async fn container_directory(
        &self,
        host: &super::ContainerHost,
        name: &str,
        project: project::Host,
    ) -> Result<Project, Error> {
        // Where the engine does not answer, a name that only one engine has is clear all the same.
        let here = host.look().await.ok().map(|seen| seen.digits);
        let found = self.containers();
        let found = found.called(&host.tenant, name, here.as_deref()).await?;
        Ok(Project {
            engine: found.engine,
            home: Home::of_container(found.subject),
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
