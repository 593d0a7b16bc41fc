//! Stands between a bucket and a real S3 server, counts what is sent, and spoils copies of parts and the ends of uploads.

use stasis_store::location::{S3Location, StoreLocation};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of a copy of a part, or of what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyFault {
    /// It is carried out.
    None,
    /// It is answered with this status and word, and not carried out.
    Refused(u16, &'static str),
    /// The first ones are answered so, as many as there are in all; the rest is carried out.
    RefusedOnce(u16, &'static str),
    /// It is not carried out, and the connection ends.
    Cut,
    /// It is carried out, and the connection ends before the answer.
    CutAfter,
    /// It is carried out, and answered after this time.
    Late(Duration),
    /// It is carried out after this time.
    HeldBack(Duration),
    /// It is carried out twice.
    Doubled,
    /// It is not understood as a copy: an empty part is stored, and answered as one.
    Ignored,
    /// It is carried out, and answered with an ETag that is no MD5.
    OtherETag,
    /// It is answered with a success whose body is an error, once.
    ErrorInSuccess,
    /// The first one is refused, the others are carried out and answered after this time.
    FirstRefusedOthersLate(Duration),
    /// It is carried out; a part that is sent is so only after this time.
    PartHeldBack(Duration),
    /// It is carried out; the first so many completions are answered with this status and word.
    NotCompleted(usize, u16, &'static str),
}

impl CopyFault {
    fn is_of_copies(self) -> bool {
        !matches!(self, Self::PartHeldBack(_) | Self::NotCompleted(..))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// The first lines of all requests.
    pub(crate) requests: Vec<String>,
    /// Bytes in the bodies of PUTs.
    pub(crate) sent: u64,
    /// Copies of parts that were asked for.
    pub(crate) copies: usize,
    /// Completions that were asked for.
    pub(crate) completions: usize,
    /// Copies of parts that were answered.
    pub(crate) copies_answered: usize,
    /// How many of them were when an upload was aborted.
    pub(crate) answered_before_abort: Option<usize>,
}

/// The proxy; it ends with the test.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    upstream: String,
    fault: CopyFault,
    traffic: Arc<Mutex<Traffic>>,
}

impl Proxy {
    /// Starts a proxy before a store; returns where the store is through it.
    pub(crate) async fn before(store: &S3Location, fault: CopyFault) -> (Self, S3Location) {
        let url = store.to_string();
        let (head, rest) = url.split_once("endpoint=http://").unwrap();
        let (upstream, tail) = rest.split_once('&').unwrap_or((rest, ""));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let through = format!("{head}endpoint=http://127.0.0.1:{port}&{tail}");
        let StoreLocation::S3(through) = through.trim_end_matches('&').parse().unwrap() else {
            panic!("{through}");
        };
        let proxy = Self {
            upstream: upstream.to_owned(),
            fault,
            traffic: Arc::default(),
        };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let proxy = serving.clone();
                tokio::spawn(async move { proxy.serve(client).await });
            }
        });
        (proxy, through)
    }

    pub(crate) fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap()
    }

    /// How many requests there were whose first line has all of these words.
    pub(crate) fn count(&self, words: &[&str]) -> usize {
        let has_all = |line: &&String| words.iter().all(|word| line.contains(word));
        self.traffic().requests.iter().filter(has_all).count()
    }

    /// Counts a request; returns whether no copy but this one was asked for.
    fn note(&self, head: &str, body: &[u8]) -> bool {
        let mut traffic = self.traffic();
        let line = head.lines().next().unwrap_or_default();
        traffic.requests.push(line.to_owned());
        let is_of_upload = line.contains("uploadId=");
        if line.starts_with("PUT ") {
            traffic.sent += body.len() as u64;
        }
        traffic.copies += usize::from(head.contains("x-amz-copy-source-range"));
        traffic.completions += usize::from(line.starts_with("POST ") && is_of_upload);
        if line.starts_with("DELETE ") && is_of_upload {
            traffic.answered_before_abort = Some(traffic.copies_answered);
        }
        traffic.copies == 1
    }

    async fn serve(&self, mut client: TcpStream) -> Option<()> {
        let (head, body) = read_request(&mut client).await?;
        let is_copy = head.contains("x-amz-copy-source-range");
        let is_completion = head.starts_with("POST ") && head.contains("uploadId=");
        let is_first = self.note(&head, &body);
        match self.fault {
            CopyFault::PartHeldBack(by) if !body.is_empty() => tokio::time::sleep(by).await,
            CopyFault::NotCompleted(times, status, code)
                if is_completion && self.traffic().completions <= times =>
            {
                client.write_all(&refusal(status, code)).await.ok()?;
                return client.shutdown().await.ok();
            }
            _ => {}
        }
        let fault = if is_copy && self.fault.is_of_copies() {
            self.fault
        } else {
            CopyFault::None
        };
        if let CopyFault::HeldBack(by) = fault {
            tokio::time::sleep(by).await;
        }
        let answer = match fault {
            CopyFault::Refused(status, code) => refusal(status, code),
            CopyFault::RefusedOnce(status, code) if is_first => refusal(status, code),
            CopyFault::FirstRefusedOthersLate(_) if is_first => refusal(404, "NoSuchKey"),
            CopyFault::Cut => return None,
            CopyFault::Ignored => reply(200, "ETag: \"d41d8cd98f00b204e9800998ecf8427e\"\r\n", ""),
            CopyFault::ErrorInSuccess if is_first => {
                reply(200, "", "<Error><Code>InternalError</Code></Error>")
            }
            _ => self.forward(&head, &body).await?,
        };
        match fault {
            CopyFault::CutAfter => return None,
            CopyFault::FirstRefusedOthersLate(_) if is_first => {}
            CopyFault::Late(by) | CopyFault::FirstRefusedOthersLate(by) => {
                tokio::time::sleep(by).await;
            }
            CopyFault::Doubled => {
                self.forward(&head, &body).await?;
            }
            _ => {}
        }
        let answer = match fault {
            CopyFault::OtherETag => {
                let body = "<CopyPartResult><ETag>\"0123-kms\"</ETag></CopyPartResult>";
                reply(200, "", body)
            }
            _ => answer,
        };
        self.traffic().copies_answered += usize::from(is_copy);
        client.write_all(&answer).await.ok()?;
        client.shutdown().await.ok()
    }

    async fn forward(&self, head: &str, body: &[u8]) -> Option<Vec<u8>> {
        let mut upstream = TcpStream::connect(&self.upstream).await.ok()?;
        let head = format!("{head}\r\nConnection: close\r\n\r\n");
        upstream.write_all(head.as_bytes()).await.ok()?;
        upstream.write_all(body).await.ok()?;
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer).await.ok()?;
        Some(answer)
    }
}

fn reply(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Said\r\nConnection: close\r\nContent-Length: {length}");
    format!("{head}\r\n{headers}\r\n{body}").into_bytes()
}

fn refusal(status: u16, code: &str) -> Vec<u8> {
    reply(status, "", &format!("<Error><Code>{code}</Code></Error>"))
}

/// Reads one request: its head without the empty line, and its body.
async fn read_request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut body = bytes.split_off(end + 4);
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok()).flatten()
    });
    while body.len() < length.unwrap_or(0) {
        if client.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}
