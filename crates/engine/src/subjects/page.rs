//! A page of the list of all subjects: what a page costs does not depend on how many subjects there are.
//!
//! *Always true:* whoever goes from page to page sees every subject once that was there all the time, whatever comes or goes meanwhile.
//! The order is that of the kinds and then that of the store.

use super::list::{KINDS, NamedSubjects, Pools};
use super::{SubjectKind, SubjectRow};
use crate::error::Error;
use crate::open::Engine;
use stasis_model::id::{ContainerSubject, Lineage, ProjectId, SessionRef, TenantId};
use stasis_store::part::Part;
use std::fmt;

/// Where a page ended: after this subject, be it there or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectCursor {
    kind: SubjectKind,
    /// Where it lies among those of its kind.
    directory: String,
}

/// Which page of the list is wanted.
#[derive(Clone, Debug)]
pub struct SubjectsAsked {
    /// Whose subjects.
    pub tenant: TenantId,
    /// Only those of this kind.
    pub kind: Option<SubjectKind>,
    /// Where the page before it ended.
    pub after: Option<SubjectCursor>,
    /// So many rows at most, and one at least.
    pub most: usize,
}

/// A page of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SubjectPage {
    /// In the order of the pages.
    pub items: Vec<SubjectRow>,
    /// Where it ended, if there is more.
    pub next: Option<SubjectCursor>,
}

impl fmt::Display for SubjectCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.kind, self.directory)
    }
}

impl SubjectCursor {
    /// What a page of this tenant ended with; nothing else is one.
    pub fn parse(tenant: &TenantId, text: &str) -> Option<Self> {
        let (kind, directory) = text.split_once(':')?;
        let kind = KINDS.into_iter().find(|one| one.to_string() == kind)?;
        let is_name = match kind {
            SubjectKind::Dir => directory.parse::<ProjectId>().is_ok(),
            SubjectKind::Container => directory.parse::<ContainerSubject>().is_ok(),
            SubjectKind::Session => {
                let session = format!("{tenant}/{directory}").parse::<SessionRef>();
                session.is_ok_and(|one| one.session.as_str() == directory)
            }
            SubjectKind::Profile => {
                let (profile, major) = directory.split_once('/')?;
                let lineage = format!("{tenant}/{profile}@{major}").parse::<Lineage>();
                lineage.is_ok_and(|one| lineage_directory(&one) == directory)
            }
        };
        is_name.then(|| Self {
            kind,
            directory: directory.to_owned(),
        })
    }
}

fn lineage_directory(lineage: &Lineage) -> String {
    format!("{}/{}", lineage.profile, lineage.major)
}

impl NamedSubjects {
    /// Where each lies among those of its kind.
    fn directories(&self) -> Vec<String> {
        match self {
            Self::Dirs(all) => all.iter().map(|(_, _, id)| id.to_string()).collect(),
            Self::Profiles(all) => all.iter().map(|(one, _)| lineage_directory(one)).collect(),
            Self::Sessions(all) => all.iter().map(|one| one.session.to_string()).collect(),
            Self::Containers(all) => all.iter().map(|(_, one)| one.to_string()).collect(),
        }
    }

    /// Only those whose places are kept, in the order of what they are sorted by.
    fn only(self, kept: &[usize]) -> Self {
        fn take<T: Clone>(all: &[T], kept: &[usize]) -> Vec<T> {
            kept.iter().map(|place| all[*place].clone()).collect()
        }
        match self {
            Self::Dirs(all) => Self::Dirs(take(&all, kept)),
            Self::Profiles(all) => Self::Profiles(take(&all, kept)),
            Self::Sessions(all) => Self::Sessions(take(&all, kept)),
            Self::Containers(all) => Self::Containers(take(&all, kept)),
        }
    }

    /// The first of all that come after a name, where the store does not list them so.
    fn first_after(self, after: Option<&str>, most: usize) -> Self {
        // The order of the keys beneath them.
        let key = |name: &str| format!("{name}/");
        let after = after.map(key);
        let keys: Vec<String> = self.directories().iter().map(|name| key(name)).collect();
        let mut kept: Vec<usize> = (0..keys.len()).collect();
        kept.retain(|place| after.as_ref().is_none_or(|after| keys[*place] > *after));
        kept.sort_by(|one, other| keys[*one].cmp(&keys[*other]));
        kept.truncate(most);
        self.only(&kept)
    }
}

impl Engine {
    /// A page of the subjects of a tenant.
    pub async fn subjects_page(&self, asked: &SubjectsAsked) -> Result<SubjectPage, Error> {
        let goes_on = self.store().lists_go_on().await;
        let listing = self.for_listing();
        let (mut items, mut pools) = (Vec::new(), Pools::new());
        let mut last = asked.after.clone();
        let begun = asked.after.as_ref().map(|cursor| cursor.kind);
        let kinds = KINDS
            .into_iter()
            .skip_while(|kind| begun.is_some_and(|begun| *kind != begun));
        for kind in kinds.filter(|kind| asked.kind.is_none_or(|wanted| wanted == *kind)) {
            loop {
                let after = last.as_ref().filter(|cursor| cursor.kind == kind);
                let after = after.map(|cursor| cursor.directory.clone());
                let missing = asked.most - items.len();
                // One more says whether there is more.
                let (directory, most) = (after, missing + 1);
                let part = Part::After { directory, most };
                let named = listing.next_named(kind, &asked.tenant, part, goes_on);
                let named = named.await?;
                let mut directories = named.directories();
                let has_more = directories.len() > missing;
                directories.truncate(missing);
                let wanted: Vec<usize> = (0..directories.len()).collect();
                let rows = self.rows_of(&listing, named.only(&wanted), &mut pools);
                items.extend(rows.await?);
                if let Some(directory) = directories.pop() {
                    last = Some(SubjectCursor { kind, directory });
                }
                if !has_more {
                    break;
                }
                if items.len() == asked.most {
                    return Ok(SubjectPage { items, next: last });
                }
            }
        }
        if items.is_empty() && asked.after.is_none() {
            self.dirs().ensure_edition().await?;
        }
        Ok(SubjectPage { items, next: None })
    }

    /// The names of a part, from the whole listing where the store does not go on in one.
    async fn next_named(
        &self,
        kind: SubjectKind,
        tenant: &TenantId,
        part: Part,
        goes_on: bool,
    ) -> Result<NamedSubjects, Error> {
        match part {
            Part::After { directory, most } if !goes_on => {
                let all = self.named(kind, Some(tenant), &Part::Whole).await?;
                Ok(all.first_after(directory.as_deref(), most))
            }
            part => self.named(kind, Some(tenant), &part).await,
        }
    }
}

#[cfg(test)]
mod tests;
