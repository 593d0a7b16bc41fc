//! Bytes out of an engine and into it, a piece at a time.

use super::client::Docker;
use super::error::CallError;
use bollard::errors::Error as BollardError;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use stasis_model::failure::Failure;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that an engine sends, as they come. A failure ends it, and is inside the error: its kind says what to do.
pub type DockerStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// What the client gives.
type ClientStream = Pin<Box<dyn Stream<Item = Result<Bytes, BollardError>> + Send>>;

impl Docker {
    /// Begins a download. Returns when the first bytes are there: what the engine does not have fails here.
    pub(super) async fn download<S>(
        &self,
        op: &'static str,
        target: &str,
        open: impl FnOnce(&bollard::Docker) -> Result<S, CallError>,
    ) -> Result<DockerStream, Failure>
    where
        S: Stream<Item = Result<Bytes, BollardError>> + Send + 'static,
    {
        let begun = self.work(op, target, async |client| {
            let mut stream: ClientStream = Box::pin(open(&client)?);
            let first = stream.next().await.transpose()?;
            Ok((first, stream))
        });
        let (first, stream) = begun.await?;
        let rest = Download {
            docker: self.clone(),
            op,
            target: target.to_owned(),
            stream,
        };
        let first = stream::iter(first.map(Ok));
        Ok(Box::pin(first.chain(rest.into_stream())))
    }
}

/// A download that goes on.
struct Download {
    docker: Docker,
    op: &'static str,
    target: String,
    stream: ClientStream,
}

impl Download {
    fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        stream::unfold(Some(self), |download| async {
            let mut download = download?;
            match download.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(download))),
                Ok(None) => None,
                Err(failure) => Some((Err(io::Error::other(failure)), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let limit = self.docker.limits().work;
        let next = async { Ok(self.stream.next().await.transpose()?) };
        let next = self.docker.while_alive(limit, next).await;
        next.map_err(|error| error.into_failure(self.op, &self.target, self.docker.host()))
    }
}

/// Why the source of an upload failed: the client says only that it did.
#[derive(Clone, Default)]
pub(super) struct UploadSource(Arc<Mutex<Option<io::Error>>>);

impl UploadSource {
    /// The same bytes; the first error is kept.
    pub(super) fn watch(
        &self,
        bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let kept = Self::clone(self);
        bytes.map(move |piece| {
            piece.map_err(|error| {
                let cut = io::Error::new(error.kind(), "the source failed");
                let mut kept = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
                kept.get_or_insert(error);
                cut
            })
        })
    }

    /// Why the upload failed: because of its source, if that failed.
    pub(super) fn blame<T>(&self, answer: Result<T, BollardError>) -> Result<T, CallError> {
        answer.map_err(|error| {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match kept.take() {
                Some(source) => Failure::from_io(source, "read", "what is sent").into(),
                None => error.into(),
            }
        })
    }
}
