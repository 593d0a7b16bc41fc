//! A subject as a user types it: where a message names the next command, that command can be run.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use stasis_model::id::{Lineage, TenantId};
use stasis_store::layout::{self, ChunkRoot, Key};
use stasis_store::location::StoreLocation;
use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

pub use stasis_model::subject_ref::{CONTAINER_PREFIX, DIR_PREFIX, PROFILE_PREFIX, SESSION_PREFIX};

/// A subject, and whose it is. `Display` is what comes after the verb: `dir:notes --tenant acme`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SubjectAddress {
    /// `dir:NAME`, `profile:TENANT/PROFILE@MAJOR`, `session:TENANT/SESSION`, `container:NAME`, or the directory of a project that has its snapshots beside it.
    pub subject: String,
    /// Whose it is, where no command takes that for granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

impl SubjectAddress {
    /// That of a directory or a session; none for a pool, which is no subject.
    pub(crate) fn of_root(store: &StoreLocation, root: &ChunkRoot) -> Option<Self> {
        if let Some((tenant, id)) = root.directory() {
            return Some(Self {
                subject: format!("{DIR_PREFIX}{id}"),
                tenant: Some(tenant).filter(|tenant| !tenant.is_default()),
            });
        }
        if let Some(session) = root.as_session() {
            return Some(Self::assumed(format!("{SESSION_PREFIX}{session}")));
        }
        if let Some((tenant, container)) = root.as_container() {
            return Some(Self {
                subject: format!("{CONTAINER_PREFIX}{container}"),
                tenant: Some(tenant).filter(|tenant| !tenant.is_default()),
            });
        }
        match store {
            StoreLocation::File(state) if root.is_alone() => {
                let project = state.parent()?.display().to_string();
                Some(Self::assumed(project))
            }
            _ => None,
        }
    }

    /// That of a profile.
    pub(crate) fn of_lineage(lineage: &Lineage) -> Self {
        Self::assumed(format!("{PROFILE_PREFIX}{lineage}"))
    }

    /// That of the subject which an index or a pointer leads to.
    pub(crate) fn of_document(store: &StoreLocation, key: &Key) -> Option<Self> {
        match layout::pointer_owner(key) {
            Some(lineage) => Some(Self::of_lineage(&lineage)),
            None => Self::of_root(store, &ChunkRoot::of_index(key)?),
        }
    }

    fn assumed(subject: String) -> Self {
        Self {
            subject,
            tenant: None,
        }
    }
}

impl Display for SubjectAddress {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&shell_word(&self.subject))?;
        match &self.tenant {
            Some(tenant) => write!(out, " --tenant {tenant}"),
            None => Ok(()),
        }
    }
}

/// Writes a profile's lineage as the subject that it is: `profile:acme/alice@131`.
pub(crate) fn as_typed<S: Serializer>(lineage: &Lineage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{PROFILE_PREFIX}{lineage}"))
}

/// The same of a lineage that may not be known.
#[expect(clippy::ref_option, reason = "serde gives the field as it is")]
pub(crate) fn as_typed_if_known<S: Serializer>(
    lineage: &Option<Lineage>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match lineage {
        Some(lineage) => as_typed(lineage, serializer),
        None => serializer.serialize_none(),
    }
}

/// A word as it is typed into a shell.
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_named_as_it_is_typed() {
        let store = StoreLocation::File("/home/me/my shop/state".into());
        let root = |tenant: &str| {
            let tenant: TenantId = tenant.parse().unwrap();
            ChunkRoot::project(&tenant, &"notes".parse().unwrap())
        };
        let named =
            |root: &ChunkRoot| SubjectAddress::of_root(&store, root).map(|one| one.to_string());

        assert_eq!(named(&root("default")).as_deref(), Some("dir:notes"));
        assert_eq!(
            named(&root("acme")).as_deref(),
            Some("dir:notes --tenant acme")
        );
        assert_eq!(
            named(&ChunkRoot::state()).as_deref(),
            Some("'/home/me/my shop'")
        );
        let session = ChunkRoot::session(&"acme/42".parse().unwrap());
        assert_eq!(named(&session).as_deref(), Some("session:acme/42"));
        let pool = ChunkRoot::pool(&"acme".parse().unwrap());
        assert_eq!(named(&pool), None);
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}
