//! What goes over the wire: one HTTP client for a bucket, and a witness to every answer.
//!
//! `object_store` reports an answer as one of its own errors, and neither deletes nor parts of an upload take anything
//! along to the request. So the witness writes into the task that asked: `traced` opens a page, the last request made
//! inside it leaves its answer there. Requests to the metadata service are not witnessed: they are not the answer.

use super::TransferSettings;
use super::explanation::{Explain, Explanation};
use ::object_store::ClientOptions;
use ::object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use async_trait::async_trait;
use chrono::NaiveDateTime;
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode};
use stasis_model::time::{Clock, Timestamp};
use std::error::Error;
use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// An error's body is read up to here; what says why comes first.
const ERROR_BODY_LIMIT: usize = 64 * 1024;

/// What was seen of one request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum ResponseInfo {
    /// It was not even tried.
    #[default]
    NotTried,
    /// There was no connection to send it on.
    NotSent,
    /// It was sent, in part at least, and no answer came.
    NoAnswer,
    /// It was answered.
    Answered {
        status: StatusCode,
        explanation: Explanation,
    },
}

impl ResponseInfo {
    /// An answer that says nothing but its status.
    pub(super) fn answered(status: StatusCode) -> Self {
        let explanation = Explanation {
            sentence: format!("the store answered {status}"),
            ..Explanation::default()
        };
        Self::Answered {
            status,
            explanation,
        }
    }
}

tokio::task_local! {
    static PAGE: Arc<Mutex<ResponseInfo>>;
}

/// Runs a request and returns what was seen of it.
pub(super) async fn traced<T>(request: impl Future<Output = T>) -> (T, ResponseInfo) {
    let page = Arc::new(Mutex::new(ResponseInfo::NotTried));
    let done = PAGE.scope(Arc::clone(&page), request).await;
    let seen = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (done, seen)
}

fn note(seen: ResponseInfo) {
    // Outside of `traced` nobody wants to know.
    let _ = PAGE.try_with(|page| *page.lock().unwrap_or_else(PoisonError::into_inner) = seen);
}

/// What one bucket sees of its connection.
#[derive(Debug)]
pub struct HttpWitness {
    clock: Arc<dyn Clock>,
    explain: Explain,
    offset_ms: Mutex<Option<i64>>,
}

impl HttpWitness {
    /// A witness that understands the refusals of one cloud.
    pub fn new(clock: Arc<dyn Clock>, explain: Explain) -> Self {
        Self {
            clock,
            explain,
            offset_ms: Mutex::new(None),
        }
    }

    /// Makes the HTTP client that this witness looks at, the same for every clone; one for a store on this machine uses no
    /// proxy.
    pub fn connector(
        self: &Arc<Self>,
        settings: &TransferSettings,
        is_local: bool,
    ) -> impl HttpConnector + Clone + use<> {
        Connector {
            witness: Arc::clone(self),
            connect_timeout: settings.connect_timeout,
            is_local,
            clients: Arc::default(),
        }
    }

    pub(super) fn explain(&self) -> Explain {
        self.explain
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
        let Some(theirs) = date.and_then(|date| http_date(date.to_str().ok()?)) else {
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

/// The HTTP client of one bucket, and another one for plain HTTP: the metadata service is asked so even where the bucket must
/// not be.
#[derive(Debug, Default)]
struct Clients {
    https_only: OnceLock<HttpClient>,
    with_http: OnceLock<HttpClient>,
}

/// Makes the HTTP clients of one bucket, each once: whoever asks shares its connections.
#[derive(Clone, Debug)]
struct Connector {
    witness: Arc<HttpWitness>,
    connect_timeout: Duration,
    is_local: bool,
    clients: Arc<Clients>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> ::object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let allow_http = allow_http.as_deref() == Some("true");
        let made = if allow_http {
            &self.clients.with_http
        } else {
            &self.clients.https_only
        };
        if let Some(client) = made.get() {
            return Ok(client.clone());
        }
        let builder = reqwest::Client::builder()
            .connect_timeout(self.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .https_only(!allow_http);
        let builder = if self.is_local {
            builder.no_proxy()
        } else {
            builder
        };
        let client = builder
            .build()
            .map_err(|source| ::object_store::Error::Generic {
                store: "HTTP",
                source: Box::new(source),
            })?;
        let client = HttpClient::new(WitnessedClient {
            witness: Arc::clone(&self.witness),
            client,
        });
        Ok(made.get_or_init(|| client).clone())
    }
}

/// An HTTP client that notes every answer.
#[derive(Debug)]
struct WitnessedClient {
    witness: Arc<HttpWitness>,
    client: reqwest::Client,
}

#[async_trait]
impl HttpService for WitnessedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if is_metadata_service(&request) {
            return self.client.call(request).await;
        }
        // Until we know better: whoever stops waiting for us here cannot know whether it was sent.
        note(ResponseInfo::NoAnswer);
        let asked = self.witness.clock.now();
        let response = match self.client.call(request).await {
            Ok(response) => response,
            Err(error) => {
                if was_never_sent(&error) {
                    note(ResponseInfo::NotSent);
                }
                return Err(error);
            }
        };
        self.witness.note_date(response.headers(), asked);
        let status = response.status();
        note(ResponseInfo::answered(status));
        if status.is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = error_body(body).await;
        let explanation = (self.witness.explain)(status, &parts.headers, &body);
        note(ResponseInfo::Answered {
            status,
            explanation,
        });
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT`, the only form a server may send today.
fn http_date(text: &str) -> Option<Timestamp> {
    let date = NaiveDateTime::parse_from_str(text, "%a, %d %b %Y %H:%M:%S GMT").ok()?;
    let millis = u64::try_from(date.and_utc().timestamp_millis()).ok()?;
    Some(Timestamp::from_millis(millis))
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

#[cfg(test)]
mod tests {
    use super::*;
    use ::object_store::client::HttpRequestBody;
    use http::Request;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[derive(Debug)]
    struct StoppedClock;

    impl Clock for StoppedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(0)
        }

        fn uptime(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// An address of this machine where every request succeeds.
    async fn plain_http() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.read(&mut [0; 1024]).await;
                let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                let _ = client.write_all(answer).await;
            }
        });
        format!("http://127.0.0.1:{port}/")
    }

    #[tokio::test]
    async fn a_bucket_is_not_asked_over_plain_http_because_the_metadata_service_is() {
        let explain: Explain = |_, _, _| Explanation::default();
        let witness = Arc::new(HttpWitness::new(Arc::new(StoppedClock), explain));
        let connector = witness.connector(&TransferSettings::default(), true);
        let url = plain_http().await;
        let request = || Request::get(&url).body(HttpRequestBody::empty()).unwrap();

        // In the order in which the library asks for them where the keys come from the instance.
        let for_metadata = ClientOptions::new().with_allow_http(true);
        let metadata = connector.connect(&for_metadata).unwrap();
        let bucket = connector.connect(&ClientOptions::new()).unwrap();

        metadata.execute(request()).await.unwrap();
        assert!(bucket.execute(request()).await.is_err());
    }

    #[test]
    fn a_date_is_the_moment_it_names() {
        for (text, moment) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37"),
            ("Tue, 29 Feb 2000 23:59:59 GMT", "2000-02-29T23:59:59"),
            ("Thu, 01 Jan 2026 00:00:00 GMT", "2026-01-01T00:00:00"),
            ("Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00"),
            ("Mon, 01 Mar 2100 12:00:00 GMT", "2100-03-01T12:00:00"),
        ] {
            assert_eq!(
                http_date(text).unwrap().to_string(),
                format!("{moment}.000Z")
            );
        }
    }

    #[test]
    fn what_is_not_a_date_is_none() {
        for text in [
            "",
            "now",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nix 1994 08:49:37 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 99999 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }
}
