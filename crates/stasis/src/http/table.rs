//! Every route there is. The router, the document that describes the service, and the tests of who is refused come from this table.

use super::endpoint::{Route, route};
use super::routes::{events, health, page, profile_snapshots, snapshots, subjects, token};
use std::sync::LazyLock;

static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    vec![
        route::<health::Healthz>(),
        route::<health::Readyz>(),
        route::<health::OpenApiDocument>(),
        route::<profile_snapshots::ListProfileSnapshots>(),
        route::<profile_snapshots::ShowProfileSnapshot>(),
        route::<profile_snapshots::RollbackProfileSnapshots>(),
        route::<profile_snapshots::DeleteProfileSnapshot>(),
        route::<profile_snapshots::ForceUnlockProfile>(),
        route::<subjects::ListSubjects>(),
        route::<subjects::ShowSubject>(),
        route::<snapshots::ListSnapshots>(),
        route::<snapshots::ShowSnapshot>(),
        route::<snapshots::ListFiles>(),
        route::<snapshots::ReadFile>(),
        route::<snapshots::DiffSnapshots>(),
        route::<events::ListEvents>(),
        route::<token::ShowToken>(),
        route::<page::ShowPage>(),
        route::<page::ShowPageFile>(),
    ]
});

/// All of them.
pub(super) fn routes() -> &'static [Route] {
    &ROUTES
}
