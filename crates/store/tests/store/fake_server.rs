//! A server that answers each request as it was told to, on this machine only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What to do with one request.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Answer with a status, more header lines and a body.
    Reply(u16, String, String),
    /// Read the request and never answer.
    Hang,
    /// Read the request and hang up.
    HangUp,
    /// Promise 1000 bytes, send a few, and hang up.
    Cut,
}

/// An error in the words of S3.
pub(crate) fn error(status: u16, code: &str) -> Behaviour {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
    Behaviour::Reply(status, String::new(), body)
}

/// A success with these headers.
pub(crate) fn success(headers: &str, body: &str) -> Behaviour {
    Behaviour::Reply(200, headers.to_owned(), body.to_owned())
}

/// A server on this machine. It stops when the test ends.
pub(crate) struct FakeServer {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    /// Starts a server that behaves so, request by request; the last behaviour stays.
    pub(crate) async fn start(behaviours: impl IntoIterator<Item = Behaviour>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(Mutex::new(VecDeque::from_iter(behaviours)));
        let heads = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&heads)));
            }
        });
        Self { port, asked }
    }

    /// The heads of the requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Arc<Mutex<VecDeque<Behaviour>>>,
    heads: Arc<Mutex<Vec<String>>>,
) {
    let Some(head) = read_request(&mut stream).await else {
        return;
    };
    let is_head = head.starts_with("HEAD ");
    heads.lock().unwrap().push(head);
    let behaviour = {
        let mut script = script.lock().unwrap();
        match script.len() {
            1 => script[0].clone(),
            _ => script.pop_front().expect("a behaviour per request"),
        }
    };
    match behaviour {
        Behaviour::Hang => std::future::pending().await,
        Behaviour::HangUp => {}
        Behaviour::Cut => {
            let text = "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 1000\r\n\r\nhalf";
            let _ = stream.write_all(text.as_bytes()).await;
        }
        Behaviour::Reply(status, headers, body) => {
            let length = if headers.contains("Content-Length") {
                String::new()
            } else {
                format!("Content-Length: {}\r\n", body.len())
            };
            let body = if is_head { "" } else { &body };
            let text = format!(
                "HTTP/1.1 {status} Said\r\nConnection: close\r\n{length}{headers}\r\n{body}"
            );
            let _ = stream.write_all(text.as_bytes()).await;
            if text.contains("999999999999") {
                std::future::pending::<()>().await;
            }
        }
    }
    let _ = stream.shutdown().await;
}

/// Reads a request with its body and returns its head.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok()).flatten()
    });
    while bytes.len() < end + 4 + length.unwrap_or(0) {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}
