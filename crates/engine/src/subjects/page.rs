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
    /// Whether the pages are sorted by us, because the store does not go on in its own order.
    is_sorted: bool,
}

/// What a cursor of such pages begins with.
const SORTED: &str = "sorted:";
/// How many names are looked at for a page beyond those that it has room for: deleted subjects have no row.
const LOOKED_AT: usize = 500;
/// How many names are asked for once some had no row.
const STEP: usize = 128;

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
        let sorted = if self.is_sorted { SORTED } else { "" };
        write!(out, "{sorted}{}:{}", self.kind, self.directory)
    }
}

impl SubjectCursor {
    /// What a page of this tenant ended with; nothing else is one.
    pub fn parse(tenant: &TenantId, text: &str) -> Option<Self> {
        let unsorted = text.strip_prefix(SORTED);
        let (kind, directory) = unsorted.unwrap_or(text).split_once(':')?;
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
            is_sorted: unsorted.is_some(),
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

    /// Only those at some places, in that order.
    fn only(&self, kept: &[usize]) -> Self {
        fn take<T: Clone>(all: &[T], kept: &[usize]) -> Vec<T> {
            kept.iter().map(|place| all[*place].clone()).collect()
        }
        match self {
            Self::Dirs(all) => Self::Dirs(take(all, kept)),
            Self::Profiles(all) => Self::Profiles(take(all, kept)),
            Self::Sessions(all) => Self::Sessions(take(all, kept)),
            Self::Containers(all) => Self::Containers(take(all, kept)),
        }
    }

    /// Those that come after a name, sorted by us.
    fn sorted_after(&self, after: Option<&str>) -> Self {
        // The order of the keys beneath them.
        let key = |name: &str| format!("{name}/");
        let after = after.map(key);
        let keys: Vec<String> = self.directories().iter().map(|name| key(name)).collect();
        let mut kept: Vec<usize> = (0..keys.len()).collect();
        kept.retain(|place| after.as_ref().is_none_or(|after| keys[*place] > *after));
        kept.sort_by(|one, other| keys[*one].cmp(&keys[*other]));
        self.only(&kept)
    }
}

/// A page that is being filled.
struct PageUnderWay<'a> {
    asked: &'a SubjectsAsked,
    items: Vec<SubjectRow>,
    pools: Pools,
    last: Option<SubjectCursor>,
    is_sorted: bool,
    looked_at: usize,
}

impl PageUnderWay<'_> {
    fn missing(&self) -> usize {
        self.asked.most - self.items.len()
    }

    /// Whether it ends here, be it full or not.
    fn is_over(&self) -> bool {
        self.missing() == 0 || self.looked_at > self.asked.most.saturating_add(LOOKED_AT)
    }

    /// The names that come next: one more than there is room for says whether there is more.
    fn next_part(&self, kind: SubjectKind, is_first: bool) -> Part {
        let last = self.last.as_ref().filter(|last| last.kind == kind);
        let most = self.missing() + 1;
        Part::After {
            directory: last.map(|last| last.directory.clone()),
            most: if is_first { most } else { most.max(STEP) },
        }
    }
}

impl Engine {
    /// A page of the subjects of a tenant. It may have fewer rows than it has room for, and still not be the last one.
    pub async fn subjects_page(&self, asked: &SubjectsAsked) -> Result<SubjectPage, Error> {
        let is_sorted = match &asked.after {
            // Pages that were begun in one order go on in it.
            Some(cursor) => cursor.is_sorted,
            None => !self.store().lists_go_on().await,
        };
        let listing = self.for_listing();
        let mut page = PageUnderWay {
            asked,
            items: Vec::new(),
            pools: Pools::new(),
            last: asked.after.clone(),
            is_sorted,
            looked_at: 0,
        };
        let begun = asked.after.as_ref().map(|cursor| cursor.kind);
        let kinds = KINDS.into_iter();
        let kinds = kinds.skip_while(|kind| begun.is_some_and(|begun| *kind != begun));
        for kind in kinds.filter(|kind| asked.kind.is_none_or(|wanted| wanted == *kind)) {
            if self.fill(&listing, kind, &mut page).await? {
                let (items, next) = (page.items, page.last);
                return Ok(SubjectPage { items, next });
            }
        }
        if page.items.is_empty() && asked.after.is_none() {
            self.dirs().ensure_edition().await?;
        }
        let items = page.items;
        Ok(SubjectPage { items, next: None })
    }

    /// Adds the subjects of a kind that come next; whether the page is over and there are more.
    async fn fill(
        &self,
        listing: &Self,
        kind: SubjectKind,
        page: &mut PageUnderWay<'_>,
    ) -> Result<bool, Error> {
        let mut is_first = true;
        loop {
            let part = page.next_part(kind, is_first);
            let (named, is_rest) = listing.next_named(kind, part, page).await?;
            is_first = false;
            let directories = named.directories();
            let mut at = 0;
            while at < directories.len() {
                if page.is_over() {
                    return Ok(true);
                }
                let end = directories.len().min(at + page.missing());
                let some: Vec<usize> = (at..end).collect();
                let rows = self.rows_of(listing, named.only(&some), &mut page.pools);
                page.items.extend(rows.await?);
                page.looked_at += end - at;
                page.last = Some(SubjectCursor {
                    kind,
                    directory: directories[end - 1].clone(),
                    is_sorted: page.is_sorted,
                });
                at = end;
            }
            if is_rest {
                return Ok(false);
            }
        }
    }

    /// The names of a part, and whether it is the last one; from the whole listing where the store does not go on in one.
    async fn next_named(
        &self,
        kind: SubjectKind,
        part: Part,
        page: &PageUnderWay<'_>,
    ) -> Result<(NamedSubjects, bool), Error> {
        let tenant = Some(&page.asked.tenant);
        match part {
            Part::After { directory, .. } if page.is_sorted => {
                let all = self.named(kind, tenant, &Part::Whole).await?;
                Ok((all.sorted_after(directory.as_deref()), true))
            }
            Part::After { most, .. } => {
                let named = self.named(kind, tenant, &part).await?;
                let is_rest = named.directories().len() < most;
                Ok((named, is_rest))
            }
            Part::Whole => Ok((self.named(kind, tenant, &part).await?, true)),
        }
    }
}

#[cfg(test)]
mod tests;
