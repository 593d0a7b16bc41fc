//! Every route there is. The router, the document that describes the service, and the tests of who is refused come from this table.

use super::endpoint::{Route, route};
use super::routes::{
    changes, directory, events, health, host, jobs, leases, mcp, metrics, operations, page,
    profile_snapshots, sessions, snapshots, stats, subjects, token,
};
use std::sync::LazyLock;

static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    vec![
        route::<health::Healthz>(),
        route::<health::Readyz>(),
        route::<health::OpenApiDocument>(),
        route::<metrics::ScrapeMetrics>(),
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
        route::<jobs::ListJobs>(),
        route::<leases::ListLeases>(),
        route::<leases::AcquireLease>(),
        route::<leases::RenewLease>(),
        route::<leases::ReleaseLease>(),
        route::<sessions::BeatSession>(),
        route::<sessions::WakeSessionHere>(),
        route::<sessions::SleepSessionHere>(),
        route::<mcp::CallTools>(),
        route::<operations::ListOperations>(),
        route::<operations::ShowOperation>(),
        route::<operations::WatchOperation>(),
        route::<changes::RollBackSubject>(),
        route::<changes::DeleteSubjectSnapshot>(),
        route::<changes::PinSnapshot>(),
        route::<changes::UnpinSnapshot>(),
        route::<changes::ForkSubject>(),
        route::<changes::ForceUnlockSubject>(),
        route::<stats::ShowStats>(),
        route::<host::SaveSubjectHere>(),
        route::<host::RestoreSnapshotHere>(),
        route::<directory::ShowDirectory>(),
        route::<directory::DiffDirectory>(),
        route::<directory::RestoreDirectory>(),
        route::<directory::UndoDirectory>(),
        route::<token::ShowToken>(),
        route::<page::ShowPage>(),
        route::<page::ShowPageFile>(),
    ]
});

/// All of them.
pub(super) fn routes() -> &'static [Route] {
    &ROUTES
}
