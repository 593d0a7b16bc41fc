//! After the storm: everything lands, every doubt is settled, and life goes on.

use super::host::Host;
use super::oracle::{Breach, Means, Promise, Verdict};
use super::writer;
use stasis_model::protocol::operation::OperationFate;
use stasis_store::documents::leases::Lease;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longer than any request can be late.
const LONGEST_FLIGHT: Duration = Duration::from_mins(10);
/// Longer than the clocks of two hosts can differ, and a lease.
const LONGEST_WAIT: Duration = Duration::from_hours(3);

/// Waits for the calm and looks at what is left; every promise must still hold.
pub(crate) async fn settle_down(heir: &Host) {
    sleep(LONGEST_FLIGHT).await;
    settle_all(heir, "settled after the storm").await;
    if heir.world.oracle().breach.is_none() {
        let verdict = go_on(heir).await;
        heir.world.oracle().judge(verdict);
    }
    settle_all(heir, "still unknown at the end").await;
}

async fn settle_all(heir: &Host, unknown_outcome: &'static str) {
    let unknowns = heir.world.oracle().unknowns();
    for record in &unknowns {
        let fate = heir.lineages.settle(record).await;
        let fate = fate.expect("there are no faults after the storm");
        let mut oracle = heir.world.oracle();
        oracle.settled(record, fate);
        if fate == OperationFate::Unknown {
            oracle.observations.add(unknown_outcome);
        }
    }
}

/// Somebody new owns the lineage, after a while, and publishes at the first attempt.
async fn go_on(heir: &Host) -> Verdict {
    let lease = own(heir).await?;
    let published = writer::publish_once(heir, &lease).await;
    if !published {
        return Err(dead("the owner of a calm lineage could not publish"));
    }
    let op_id = heir.random.preview_op_id();
    let release = heir.lineages.release(&lease.lineage, lease.fence);
    let means = Means::Release(lease.fence);
    match heir.perform(op_id, means, release).await {
        Ok(_) => Ok(()),
        Err(_) => Err(dead("the owner of a calm lineage could not give it back")),
    }
}

async fn own(heir: &Host) -> Result<Lease, Breach> {
    let begun = Instant::now();
    while begun.elapsed() < LONGEST_WAIT {
        if let Some(lease) = writer::acquire(heir).await {
            return Ok(lease);
        }
        sleep(Duration::from_mins(2)).await;
    }
    Err(dead("nobody could own a calm lineage"))
}

fn dead(what: &str) -> Breach {
    Breach {
        promise: Promise::Live,
        what: what.to_owned(),
    }
}
