//! Whether the store keeps its word.
//!
//! A directory and memory are our own code and trusted. A bucket is probed at its first use; what was found is kept in
//! the bucket and on this host, dated, so that not every command probes. A refusal is never kept: it is found anew.

use crate::bridge;
use crate::error::Error;
use crate::handle::StoreHealth;
use bytes::Bytes;
use stasis_disk::fs::atomic_write::{atomic_write, read_bounded};
use stasis_model::digest::StoreDigest;
use stasis_model::format::document;
use stasis_store::documents::lineages;
use stasis_store::documents::lineages::ReadError;
use stasis_store::layout;
use stasis_store::location::StoreLocation;
use stasis_store::probe::{self, CheckName};
pub use stasis_store::probe::{ProbeReport, summary};
use std::path::PathBuf;
use std::time::Duration;

/// How long a good report is believed.
const BELIEVED: Duration = Duration::from_hours(7 * 24);

/// Whether more than one writer may share the store.
pub fn trustworthy(report: &ProbeReport) -> bool {
    report.verdict == probe::ProbeVerdict::MultiWriter
}

impl StoreHealth<'_> {
    /// Asks the store, now, and keeps a good answer.
    pub async fn probe(self) -> Result<ProbeReport, Error> {
        // A store that cannot even be asked is an error of its own, not a bad report.
        self.bucket.exists(&layout::probe_result()).await?;
        let report = probe::probe(
            &*self.bucket,
            &self.location.to_string(),
            &*self.rng,
            self.lineages.now(),
        )
        .await?;
        if trustworthy(&report) {
            self.keep_report(&report).await;
        }
        Ok(report)
    }

    /// Makes sure that the store answers now; asks for no more than that.
    pub async fn reach(self) -> Result<(), Error> {
        self.bucket.exists(&layout::probe_result()).await?;
        Ok(())
    }

    /// Refuses a store that more than one writer must not share.
    pub(crate) async fn ensure_trusted(self) -> Result<(), Error> {
        if !matches!(self.location, StoreLocation::S3(_)) {
            return Ok(());
        }
        self.trusted
            .get_or_try_init(|| self.find_trust())
            .await
            .copied()
    }

    /// Whether a listing of the store goes on where it is asked to. Of a bucket whose report does not say, it is not relied on.
    pub(crate) async fn lists_go_on(self) -> bool {
        if !matches!(self.location, StoreLocation::S3(_)) {
            return true;
        }
        let known = self.lists_go_on.get_or_try_init(|| self.reported());
        known.await.is_ok_and(|goes_on| *goes_on)
    }

    /// What the last report says of that, as an error where there is none.
    async fn reported(self) -> Result<bool, ()> {
        let says = |report: &ProbeReport| report.says(CheckName::ListGoesOn);
        if let Some(goes_on) = self.local_report().await.as_ref().and_then(says) {
            return Ok(goes_on);
        }
        let key = layout::probe_result();
        let stored = lineages::read::<ProbeReport>(&*self.bucket, &key).await;
        let stored = stored.map_err(drop)?;
        stored.and_then(|found| says(&found.value)).ok_or(())
    }

    async fn find_trust(self) -> Result<(), Error> {
        let (now, store) = (self.lineages.now(), self.location.to_string());
        let believed = |report: &ProbeReport| {
            trustworthy(report)
                && report.store == store
                && now.since(report.checked_at_ms) < BELIEVED
        };
        if self
            .local_report()
            .await
            .is_some_and(|report| believed(&report))
        {
            return Ok(());
        }
        let stored =
            match lineages::read::<ProbeReport>(&*self.bucket, &layout::probe_result()).await {
                Ok(found) => found,
                // A report that cannot be understood is no report; the store is simply asked again.
                Err(ReadError::Document { .. }) => None,
                Err(error) => return Err(error.into()),
            };
        if let Some(found) = stored.filter(|found| believed(&found.value)) {
            self.keep_locally(&found.value).await;
            return Ok(());
        }
        let report = self.probe().await?;
        if trustworthy(&report) {
            return Ok(());
        }
        Err(Error::untrustworthy(&store, &report))
    }

    async fn keep_report(self, report: &ProbeReport) {
        let bytes = Bytes::from(document::render(report));
        if let Err(error) = self.bucket.put(&layout::probe_result(), bytes).await {
            tracing::warn!(%error, "the probe's result was not kept in the store");
        }
        self.keep_locally(report).await;
    }

    async fn keep_locally(self, report: &ProbeReport) {
        let (Some(path), bytes) = (self.report_path(), document::render(report)) else {
            return;
        };
        if let Err(error) = bridge::blocking(move || atomic_write(&path, &bytes)).await {
            tracing::warn!(%error, "the probe's result was not kept on this host");
        }
    }

    /// What this host remembers; anything unreadable is simply not remembered.
    async fn local_report(self) -> Option<ProbeReport> {
        let path = self.report_path()?;
        let limit = document::SIZE_LIMIT as u64;
        let read = bridge::blocking(move || read_bounded(&path, limit)).await;
        let bytes = read.ok()?;
        document::parse(&bytes).ok()
    }

    fn report_path(self) -> Option<PathBuf> {
        let store = StoreDigest::of(self.location.to_string().as_bytes());
        let file = format!("{}.json", store.prefix());
        self.local_dirs
            .cache
            .as_ref()
            .map(|cache| cache.join("probes").join(file))
    }
}
