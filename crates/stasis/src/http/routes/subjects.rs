//! Everything that a tenant has saved.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::parameters::PageSize;
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::subjects::{SubjectKind, SubjectRow};

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

/// A page of subjects, by name.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct SubjectPage {
    items: Vec<SubjectRow>,
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
        let mut items = call.engine.subjects(Some(&tenant)).await?.items;
        items.retain(|row| self.kind.is_none_or(|kind| row.kind == kind));
        // The cursor is the last name of a page: what comes or goes meanwhile moves no other one.
        let after = |row: &SubjectRow| self.cursor.as_ref().is_none_or(|last| row.subject > *last);
        items.retain(after);
        let has_more = items.len() > self.limit.rows();
        items.truncate(self.limit.rows());
        for row in &mut items {
            // Where it lies on the server's host is nobody's business who is not there.
            row.dir = None;
        }
        let last = items.last().map(|row| row.subject.clone());
        Ok(SubjectPage {
            items,
            next_cursor: last.filter(|_| has_more),
        }
        .into())
    }
}
