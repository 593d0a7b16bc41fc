//! What servers do without being asked.

use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::problem::Problem;
use http::Method;
use schemars::JsonSchema;
use serde::Deserialize;
use stasis_engine::jobs::{JobList, JobSettings};
use stasis_engine::model::format::token::TokenScope;

/// `GET /v1/jobs`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListJobs {}

impl Endpoint for ListJobs {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/jobs";
    const NAME: &'static str = "list_jobs";
    const SUMMARY: &'static str = "List the jobs of the store, when each ran last, and who runs it";
    const ACCESS: Access = Access::Token(TokenScope::Admin);
    type Body = NoBody;
    type Answer = JobList;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<JobList>, Problem> {
        let list = call.engine.jobs().list(&JobSettings::default()).await?;
        // A job works for all tenants, and its messages name subjects of each.
        Ok(list.without_messages().into())
    }
}
