//! What a racing process does, and what it leaves in its journal.
//!
//! A racer acquires a lineage, publishes a few snapshots that build on each other, and gives it back, sometimes. Each
//! line of its journal is durable before it goes on, so that a racer that is killed leaves a true account: `try` before
//! a publish, then `ok`, `refused` or `unknown` after it.

use bytes::Bytes;
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::lease::Acquire;
use stasis_engine::open::Engine;
use stasis_model::digest::{ArchiveDigest, ManifestDigest};
use stasis_model::format::lease::Holder;
use stasis_model::format::pointer::Active;
use stasis_model::id::{Label, Lineage};
use stasis_model::rng::Rng;
use stasis_store::documents::leases::Lease;
use stasis_store::documents::pointers::PublishSnapshot;
use stasis_store::layout;
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

/// The lineage everybody races for.
pub fn lineage() -> Lineage {
    "race/shared@131"
        .parse()
        .expect("a constant that is a lineage")
}

/// How long a racer's lease lasts: short, so that take-overs are frequent.
pub const TTL: Duration = Duration::from_secs(1);

/// A racer and its journal.
#[derive(Debug)]
pub struct Racer<'a> {
    /// The store everybody shares.
    pub engine: &'a Engine,
    /// What this racer is called.
    pub name: Label,
    /// Where it writes down what it did.
    pub journal: File,
    /// Where its whims come from.
    pub random: &'a dyn Rng,
}

impl Racer<'_> {
    /// Races until `publishes` snapshots were acknowledged; a lost lease or an unknown outcome only ends a round.
    pub async fn race(&mut self, publishes: usize) -> io::Result<()> {
        let mut acknowledged = 0;
        while acknowledged < publishes {
            match self.engine.leases().acquire(self.claim()).await {
                Ok(acquired) => acknowledged += self.round(&acquired.lease).await?,
                Err(error) => self.note("waits", &format!("{:?}", error.kind()))?,
            }
            tokio::time::sleep(Duration::from_millis(5 + self.random.below(60))).await;
        }
        Ok(())
    }

    fn claim(&self) -> Acquire {
        let holder = Holder {
            run_id: self.name.clone(),
            host: self.name.clone(),
            host_run_id: Label::nobody(),
        };
        Acquire {
            lineage: lineage(),
            holder,
            ttl: Some(TTL),
        }
    }

    async fn round(&mut self, lease: &Lease) -> io::Result<usize> {
        self.note("owns", &lease.fence.to_string())?;
        let mut base = lease.base.as_ref().map(|base| base.archive);
        let wanted = 1 + self.random.below(6);
        for done in 0..wanted {
            tokio::time::sleep(Duration::from_millis(self.random.below(40))).await;
            match self.publish(lease, base).await? {
                Some(archive) => base = Some(archive),
                None => return Ok(usize::try_from(done).unwrap_or_default()),
            }
        }
        // A racer that forgets to give back makes the others wait for the expiry.
        if self.random.below(8) > 0 {
            let _ = self.engine.leases().release(&lineage(), lease.fence).await;
        }
        Ok(usize::try_from(wanted).unwrap_or_default())
    }

    async fn publish(
        &mut self,
        lease: &Lease,
        base: Option<ArchiveDigest>,
    ) -> io::Result<Option<ArchiveDigest>> {
        let op_id = self.engine.lineages().op_id();
        let body = format!("{op_id} after {base:?}");
        let archive = ArchiveDigest::of(body.as_bytes());
        let described = serde_json::json!({ "archive_sha256": archive, "predecessor_sha256": base, "op_id": op_id });
        let manifest = Bytes::from(described.to_string());
        let to = Active {
            archive,
            manifest: ManifestDigest::of(&manifest),
            archive_key: layout::archive(&lineage(), archive).to_string(),
            manifest_key: layout::manifest(&lineage(), archive).to_string(),
        };
        self.note("try", &archive.to_string())?;
        let bucket = self.engine.bucket();
        let stored = match bucket
            .put(&layout::archive(&lineage(), archive), Bytes::from(body))
            .await
        {
            Ok(()) => {
                bucket
                    .put(&layout::manifest(&lineage(), archive), manifest)
                    .await
            }
            Err(error) => Err(error),
        };
        if stored.is_err() {
            self.note("refused", &archive.to_string())?;
            return Ok(None);
        }
        let publish = PublishSnapshot {
            op_id,
            fence: lease.fence,
            base,
            to,
        };
        let published = self
            .engine
            .lineages()
            .publish(&lineage(), publish)
            .await
            .map_err(Error::from);
        let (word, next) = match published.as_ref().map_err(Error::kind) {
            Ok(_) => ("ok", Some(archive)),
            Err(ErrorKind::Unknown) => ("unknown", None),
            Err(ErrorKind::Fenced) => ("fenced", None),
            Err(_) => ("refused", None),
        };
        self.note(word, &archive.to_string())?;
        Ok(next)
    }

    fn note(&mut self, word: &str, detail: &str) -> io::Result<()> {
        self.journal
            .write_all(format!("{word} {detail}\n").as_bytes())?;
        self.journal.sync_data()
    }
}
