//! Everything that a tenant has saved.

use super::events::LoggedEvent;
use super::snapshots::subject;
use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::parameters::PageSize;
use crate::http::private::scrubbed;
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::kind::profile::ShownProfile;
use stasis_engine::kind::session::SessionRow;
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::id::{ProfileRef, SessionRef, TenantId};
use stasis_engine::stored::StoredSnapshot;
use stasis_engine::subjects::{SubjectCursor, SubjectKind, SubjectRow, SubjectsAsked};
use stasis_engine::warning::Warning;
use std::str::FromStr;

/// `GET /v1/subjects`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListSubjects {
    /// Only those of this kind
    #[serde(default)]
    kind: Option<SubjectKind>,
    /// Where the page before this one ended: its `next_cursor`
    #[serde(default)]
    cursor: Option<String>,
    /// How many rows the page has at most
    #[serde(default)]
    limit: PageSize,
}

/// A subject, and what paths call it.
#[derive(Serialize, JsonSchema)]
struct ListedSubject {
    #[serde(flatten)]
    row: SubjectRow,
    /// The `{id}` of its paths: what it is called after its kind, and after the tenant.
    id: String,
}

/// A page of subjects, by name.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct SubjectPage {
    items: Vec<ListedSubject>,
    /// Where the next page begins; there is none where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl Endpoint for ListSubjects {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/subjects";
    const NAME: &'static str = "list_subjects";
    const SUMMARY: &'static str = "List everything that the tenant has saved";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = SubjectPage;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<SubjectPage>, Problem> {
        let tenant = call.tenant()?;
        let cursor = |text: &String| {
            let none = || Problem::parameters(&"`cursor` is not the `next_cursor` of a page");
            SubjectCursor::parse(&tenant, text).ok_or_else(none)
        };
        let asked = SubjectsAsked {
            after: self.cursor.as_ref().map(cursor).transpose()?,
            kind: self.kind,
            most: self.limit.rows(),
            tenant,
        };
        let page = call.engine.subjects_page(&asked).await?;
        let next_cursor = page.next.map(|cursor| cursor.to_string());
        let items = page.items.into_iter().map(|mut row| {
            // Where it lies on the server's host is nobody's business who is not there.
            row.dir = None;
            if let Some(error) = &mut row.error {
                error.message = scrubbed(&error.message);
                error.causes.iter_mut().for_each(|one| *one = scrubbed(one));
            }
            let id = row.id().to_owned();
            ListedSubject { row, id }
        });
        let items = items.collect();
        Ok(SubjectPage { items, next_cursor }.into())
    }
}

/// How many events of a subject are shown.
const EVENTS: usize = 20;

/// `GET /v1/subjects/{kind}/{id}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowSubject {
    kind: SubjectKind,
    /// What the subject is called after its kind and its tenant: `notes`, `alice@131`
    id: String,
}

/// What a run of the subject would start from now, and why.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct ShownSubject {
    kind: SubjectKind,
    id: String,
    /// How many snapshots it has.
    snapshots: u64,
    /// What `latest` means; of a profile, under each major version of the browser.
    latest: Vec<StoredSnapshot>,
    /// The newest one, if `latest` means another.
    #[serde(skip_serializing_if = "Option::is_none")]
    newer: Option<StoredSnapshot>,
    /// Of a profile: the pointer and the lock of each major version of the browser.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ShownProfile>,
    /// Of a session: where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionRow>,
    /// What speaks against what a run would start from: of a profile, another version of its browser, another place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<ShownWarning>,
    /// The last forced, destructive and degraded acts, the newest first.
    events: Vec<LoggedEvent>,
    /// The day on which the search for them ended: of it and of those before not all were looked at, and there may be more. The whole log
    /// was, where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    events_ended_on: Option<String>,
    /// How many of them cannot be read.
    #[serde(skip_serializing_if = "is_zero")]
    events_unreadable: u64,
    /// Documents that cannot be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

/// Something to know, and what a user reads of it.
#[derive(Serialize, JsonSchema)]
struct ShownWarning {
    #[serde(flatten)]
    warning: Warning,
    message: String,
}

impl From<&Warning> for ShownWarning {
    fn from(warning: &Warning) -> Self {
        Self {
            message: scrubbed(&warning.to_string()),
            warning: warning.clone(),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde gives the field as it is"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Endpoint for ShowSubject {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}";
    const NAME: &'static str = "show_subject";
    const SUMMARY: &'static str =
        "Show what a run would start from: snapshot, pointer, lock, and the last events";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = ShownSubject;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<ShownSubject>, Problem> {
        let tenant = call.tenant()?;
        let found = subject(call, self.kind, &self.id).await?;
        let all = found.snapshots().await?;
        let profile = match self.named(&tenant, SubjectKind::Profile) {
            Some(profile) => {
                let profile: ProfileRef = profile?;
                Some(call.engine.profiles().show(&profile, None).await?)
            }
            None => None,
        };
        let session = match self.named(&tenant, SubjectKind::Session) {
            Some(session) => {
                let session: SessionRef = session?;
                call.engine.sessions().list_one(&session).await?.items.pop()
            }
            None => None,
        };
        let log = found.events(EVENTS).await?;
        let warnings = profile.iter().flat_map(|one| &one.warnings);
        let warnings = warnings.map(Into::into).collect();
        let pointers = profile.iter().flat_map(|one| &one.lineages);
        let pointers: Vec<_> = pointers.filter_map(|one| one.pointer.as_ref()).collect();
        let generation = match &pointers[..] {
            [pointer] => Some(pointer.generation),
            _ => None,
        };
        let newest = all.items.first().filter(|one| !one.active).cloned();
        let answer = ShownSubject {
            kind: self.kind,
            snapshots: all.items.len() as u64,
            newer: newest,
            latest: all.items.into_iter().filter(|one| one.active).collect(),
            session: session.map(without_place),
            warnings,
            events: log.events.into_iter().map(Into::into).collect(),
            events_ended_on: log.ended_on,
            events_unreadable: log.unreadable,
            unreadable: all.unreadable.iter().map(|one| scrubbed(one)).collect(),
            id: self.id,
            profile,
        };
        Ok(Reply::of(answer, generation))
    }
}

impl ShowSubject {
    /// The subject in whole, if it is of this kind.
    fn named<T: FromStr>(
        &self,
        tenant: &TenantId,
        kind: SubjectKind,
    ) -> Option<Result<T, Problem>> {
        let named = || format!("{tenant}/{}", self.id).parse();
        (self.kind == kind).then(|| named().map_err(|_| Problem::nowhere()))
    }
}

/// Where it lies on some host is nobody's business who is not there.
fn without_place(mut row: SessionRow) -> SessionRow {
    row.dir.clear();
    row
}
