//! What is answered: a document, or bytes as they come.

use super::problem::Problem;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, SizeHint};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// What is sent. An error in it ends the connection, so that nobody takes a part for the whole.
pub(crate) type AnswerBody = BoxBody<Bytes, io::Error>;

/// What a route answers.
pub(super) trait Answer {
    /// What stands in the document about it.
    fn described(generator: &mut SchemaGenerator) -> AnswerSchema;

    fn content(self) -> Result<Content, Problem>;
}

/// How an answer is described.
pub(super) struct AnswerSchema {
    pub(super) status: StatusCode,
    pub(super) media_type: &'static str,
    pub(super) schema: Schema,
}

/// An answer as it is sent.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) status: StatusCode,
    pub(super) media_type: &'static str,
    /// Where what was made is found.
    pub(super) location: Option<String>,
    /// What the head has besides, names in small letters.
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) body: AnswerBody,
}

impl Content {
    /// All of it at once.
    pub(super) fn whole(media_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self {
            status: StatusCode::OK,
            media_type,
            location: None,
            headers: &[],
            body: whole(bytes),
        }
    }
}

/// Bytes that are there already.
pub(super) fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed()
}

impl<T: Serialize + JsonSchema> Answer for T {
    fn described(generator: &mut SchemaGenerator) -> AnswerSchema {
        AnswerSchema {
            status: StatusCode::OK,
            media_type: "application/json",
            schema: generator.subschema_for::<T>(),
        }
    }

    fn content(self) -> Result<Content, Problem> {
        let text = serde_json::to_vec(&self).map_err(|why| Problem::bug(&why))?;
        Ok(Content::whole("application/json", text))
    }
}

/// Bytes that are still being made: whoever makes them waits for whoever takes them.
#[derive(Debug)]
pub(super) struct ByteStream {
    /// What is taken before the rest.
    first: Option<Bytes>,
    rest: mpsc::Receiver<io::Result<Bytes>>,
}

impl ByteStream {
    /// The end that bytes are put into, and the one that is sent. So many pieces wait in between.
    pub(super) fn channel(pieces: usize) -> (mpsc::Sender<io::Result<Bytes>>, Self) {
        let (sender, rest) = mpsc::channel(pieces);
        (sender, Self { first: None, rest })
    }

    /// Waits until there is something to take; says whether there is, or ever will be.
    pub(super) async fn begins(&mut self) -> bool {
        if let Some(Ok(first)) = self.rest.recv().await {
            self.first = Some(first);
        }
        self.first.is_some()
    }

    pub(super) fn boxed(self) -> AnswerBody {
        BoxBody::new(self)
    }
}

impl Body for ByteStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let received = self.rest.poll_recv(context);
        received.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// An answer that counts its pieces as they are taken, so that somebody who takes a long one is told from somebody who takes nothing.
#[derive(Debug)]
pub(super) struct Watched {
    body: AnswerBody,
    taken: Arc<AtomicU64>,
}

impl Watched {
    pub(super) fn new(body: AnswerBody, taken: Arc<AtomicU64>) -> Self {
        Self { body, taken }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
