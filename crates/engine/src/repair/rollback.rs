//! Going on from a store that went back to an earlier state.
//!
//! *Always true:* only documents that did go back are accepted and reported; of the others this host remembers what it saw. None is
//! accepted beside which snapshots lie that it does not lead to: those come back by a repair.

use crate::catalog::references::damage;
use crate::check::{Remedy, log};
use crate::error::Error;
use crate::handle::{DirRepo, Profiles};
use crate::keys::tenant_of;
use crate::kind::project::namesakes::fitting;
use crate::open::Engine;
use crate::seen::DocumentState;
use crate::subjects::DIR_PREFIX;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::key::KeyOwner;
use stasis_model::id::{Label, Lineage, ProjectId, TenantId};
use stasis_store::layout::{self, ChunkRoot};

/// Subjects whose documents went back, and are believed again; and pools, as `pools/TENANT`, of which this host knew only that they
/// had a key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AcceptedRollback {
    /// Which.
    pub subjects: Vec<String>,
}

impl Engine {
    /// Goes on from every document of the store that went back, also of subjects that the store does not have any more.
    pub async fn accept_rollback_of_all(&self, actor: &Label) -> Result<AcceptedRollback, Error> {
        let mut all = AcceptedRollback::default();
        let remembered = self.remembered_documents().await?;
        // All or nothing: whoever is refused for one of them has not lost sight of the others.
        for root in remembered.iter().filter_map(ChunkRoot::of_index) {
            self.rooted(root).dirs().ensure_nothing_newer().await?;
        }
        for key in &remembered {
            let accepted = if let Some(lineage) = layout::pointer_owner(key) {
                self.profiles().accept_rollback(&lineage, actor).await?
            } else if let Some(root) = ChunkRoot::of_index(key) {
                self.rooted(root).dirs().accept_rollback(actor).await?
            } else {
                continue;
            };
            all.subjects.extend(accepted.subjects);
        }
        // Keys of which nothing else is remembered; those of the documents above are accepted with them.
        for owner in remembered.iter().filter_map(layout::data_key_owner) {
            let has_lost_key = self.accept_vanished_key(&owner).await?;
            let subject = match &owner {
                KeyOwner::Lineage(lineage) => format!("profile:{lineage}"),
                KeyOwner::Pool(pool) => pool.to_string(),
            };
            let tenant = tenant_of(&owner);
            let accepted = self.accepted(subject, has_lost_key, &tenant, actor).await;
            all.subjects.extend(accepted.subjects);
        }
        all.subjects.sort();
        Ok(all)
    }

    /// Goes on from the index of the directory that is called so, which the store need not have any more.
    pub async fn accept_rollback_of_directory(
        &self,
        tenant: &TenantId,
        name: &str,
        actor: &Label,
    ) -> Result<AcceptedRollback, Error> {
        let remembered = self.remembered_documents().await?.into_iter();
        let mine = remembered
            .filter_map(|key| ChunkRoot::of_index(&key)?.directory())
            .filter(|(owner, _)| owner == tenant);
        let ids: Vec<ProjectId> = mine.map(|(_, id)| id).collect();
        let fits = fitting(&ids, name.strip_prefix(DIR_PREFIX).unwrap_or(name));
        let id = match fits[..] {
            [id] => id.clone(),
            _ => self.named_directory(tenant, name).await?.id,
        };
        let root = self.rooted(ChunkRoot::project(tenant, &id));
        root.dirs().accept_rollback(actor).await
    }

    /// Writes down that a document is believed again, if it is.
    async fn accepted(
        &self,
        subject: String,
        went_back: bool,
        tenant: &TenantId,
        actor: &Label,
    ) -> AcceptedRollback {
        if !went_back {
            return AcceptedRollback::default();
        }
        let events = self.events();
        let event = events.event(EventKind::RollbackAccepted, Severity::Warning, actor);
        let event = event.with("subject", subject.as_str());
        events.record(tenant, event).await;
        let subjects = vec![subject];
        AcceptedRollback { subjects }
    }
}

impl DirRepo<'_> {
    /// Refuses to go on from an index that went back while snapshots lie beside it that it does not lead to: the next save would take
    /// them for what killed saves left.
    async fn ensure_nothing_newer(self) -> Result<(), Error> {
        let root = self.root();
        let memory = self.memory_of_index(&root).await;
        // Where the document of the pool cannot be used, nothing is accepted.
        let Some(repo) = damage(root.repo().await)?.ok().flatten() else {
            return Ok(());
        };
        let index = self.index(&root).await?;
        let Some(back) = memory.index_went_back(&repo, &index).await else {
            return Ok(());
        };
        let newer = self.newer_snapshots(&root, &index).await?;
        match Remedy::for_rollback(&newer) {
            Remedy::AcceptRollback => Ok(()),
            _ => Err(back.index_error(&newer)),
        }
    }

    /// Goes on from the index of this subject, although this host has seen a later one.
    pub async fn accept_rollback(self, actor: &Label) -> Result<AcceptedRollback, Error> {
        let root = self.root();
        let known = root.layout().directory();
        let subject = match &known {
            Some((_, id)) => format!("{DIR_PREFIX}{id}"),
            None => self.root_name(&root),
        };
        let tenant = known.map_or_else(log, |(tenant, _)| tenant);
        let owner = KeyOwner::from(root.layout().pool_id());
        let has_lost_key = self.accept_vanished_key(&owner).await?;
        if let Err(error) = self.ensure_nothing_newer().await {
            // The repair that is named instead needs the pool, which is believed again.
            self.accepted(subject, has_lost_key, &tenant, actor).await;
            return Err(error);
        }
        let found = match self.settings(&root).await {
            Ok(repo) => Some(DocumentState::of_index(&repo, &self.index(&root).await?)),
            Err(Error::NoRepo(_)) => None,
            Err(error) => return Err(error),
        };
        let key = root.layout().index();
        let went_back = self.accept(&key, found).await? | has_lost_key;
        Ok(self.accepted(subject, went_back, &tenant, actor).await)
    }
}

impl Profiles<'_> {
    /// Goes on from the pointer of a lineage, although this host has seen a later one.
    pub async fn accept_rollback(
        self,
        lineage: &Lineage,
        actor: &Label,
    ) -> Result<AcceptedRollback, Error> {
        let found = self.lineages.pointer(lineage).await?;
        let found = found.map(|found| DocumentState::of_pointer(found.value.generation));
        let (subject, key) = (format!("profile:{lineage}"), layout::pointer(lineage));
        let has_lost_key = self
            .accept_vanished_key(&KeyOwner::from(lineage.clone()))
            .await?;
        let went_back = self.accept(&key, found).await? | has_lost_key;
        Ok(self
            .accepted(subject, went_back, &lineage.tenant, actor)
            .await)
    }
}
