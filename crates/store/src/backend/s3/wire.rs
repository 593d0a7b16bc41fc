//! What goes over the wire: one HTTP client for a bucket, and a witness to every answer.
//!
//! `object_store` reports an answer as one of its own errors, and neither deletes nor parts of an upload take anything
//! along to the request. So the witness writes into the task that asked: `traced` opens a page, the last request made
//! inside it leaves its answer there. Requests to the metadata service are not witnessed: they are not the answer.

use super::S3Settings;
use super::date;
use super::remark::Remark;
use crate::location::{Endpoint, S3Location};
use async_trait::async_trait;
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use stasis_model::time::{Clock, Timestamp};
use std::error::Error;
use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An error's body is read up to here; what says why comes first.
const ERROR_BODY_LIMIT: usize = 64 * 1024;

/// What was seen of one request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Seen {
    /// It was not even tried.
    #[default]
    Nothing,
    /// There was no connection to send it on.
    NotSent,
    /// It was sent, in part at least, and no answer came.
    NoAnswer,
    /// It was answered.
    Answer {
        status: StatusCode,
        /// What the store said about a refusal.
        remark: Remark,
    },
}

tokio::task_local! {
    static PAGE: Arc<Mutex<Seen>>;
}

/// Runs a request and returns what was seen of it.
pub(super) async fn traced<T>(request: impl Future<Output = T>) -> (T, Seen) {
    let page = Arc::new(Mutex::new(Seen::Nothing));
    let done = PAGE.scope(Arc::clone(&page), request).await;
    let seen = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (done, seen)
}

fn note(seen: Seen) {
    // Outside of `traced` nobody wants to know.
    let _ = PAGE.try_with(|page| *page.lock().unwrap_or_else(PoisonError::into_inner) = seen);
}

/// What one bucket knows about its connection.
#[derive(Debug)]
pub(super) struct Wire {
    clock: Arc<dyn Clock>,
    offset_ms: Mutex<Option<i64>>,
}

impl Wire {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let offset_ms = Mutex::new(None);
        Self { clock, offset_ms }
    }

    pub(super) fn clock_offset_ms(&self) -> Option<i64> {
        *self
            .offset_ms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the store's clock with ours, taking the answer's moment as the middle between asking and hearing.
    fn note_date(&self, headers: &HeaderMap, asked: Timestamp) {
        let date = headers.get(http::header::DATE);
        let Some(theirs) = date.and_then(|date| date::parsed(date.to_str().ok()?)) else {
            return;
        };
        let heard = self.clock.now();
        let ours = asked.plus(heard.since(asked) / 2).millis();
        // A date is cut to whole seconds: on average half a second is missing.
        let offset = i128::from(theirs.millis()) + 500 - i128::from(ours);
        *self
            .offset_ms
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = i64::try_from(offset).ok();
    }
}

/// Makes the HTTP clients of one bucket.
#[derive(Debug)]
pub(super) struct Connector {
    wire: Arc<Wire>,
    connect_timeout: Duration,
    on_this_machine: bool,
}

impl Connector {
    pub(super) fn new(wire: &Arc<Wire>, location: &S3Location, settings: &S3Settings) -> Self {
        let endpoint = location.endpoint.as_ref();
        Self {
            wire: Arc::clone(wire),
            connect_timeout: settings.connect_timeout,
            on_this_machine: endpoint.is_some_and(Endpoint::is_plain_http),
        }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let builder = reqwest::Client::builder()
            .connect_timeout(self.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .https_only(allow_http.as_deref() != Some("true"));
        let builder = if self.on_this_machine {
            builder.no_proxy()
        } else {
            builder
        };
        let client = builder
            .build()
            .map_err(|source| object_store::Error::Generic {
                store: "S3",
                source: Box::new(source),
            })?;
        Ok(HttpClient::new(Witness {
            wire: Arc::clone(&self.wire),
            client,
        }))
    }
}

/// An HTTP client that notes every answer.
#[derive(Debug)]
struct Witness {
    wire: Arc<Wire>,
    client: reqwest::Client,
}

#[async_trait]
impl HttpService for Witness {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if is_metadata_service(&request) {
            return self.client.call(request).await;
        }
        // Until we know better: whoever stops waiting for us here cannot know whether it was sent.
        note(Seen::NoAnswer);
        let asked = self.wire.clock.now();
        let response = match self.client.call(request).await {
            Ok(response) => response,
            Err(error) => {
                if was_never_sent(&error) {
                    note(Seen::NotSent);
                }
                return Err(error);
            }
        };
        self.wire.note_date(response.headers(), asked);
        let status = response.status();
        let remark = Remark::default();
        note(Seen::Answer { status, remark });
        if status.is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = error_body(body).await;
        let remark = Remark::in_answer(&parts.headers, &body);
        note(Seen::Answer { status, remark });
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

fn is_metadata_service(request: &HttpRequest) -> bool {
    let host = request.uri().host().unwrap_or_default();
    host.parse()
        .is_ok_and(|host: Ipv4Addr| host.is_link_local())
}

/// Whether a request failed before a connection stood: refused, unknown host, or no answer to connecting.
fn was_never_sent(error: &HttpError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<reqwest::Error>() {
            return error.is_connect();
        }
        cause = error.source();
    }
    false
}

/// The beginning of an error's body; one that cannot be read says nothing.
async fn error_body(body: HttpResponseBody) -> String {
    let mut pieces = body.bytes_stream();
    let mut text = Vec::new();
    while let Some(Ok(piece)) = pieces.next().await {
        text.extend_from_slice(&piece);
        if text.len() >= ERROR_BODY_LIMIT {
            text.truncate(ERROR_BODY_LIMIT);
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}
