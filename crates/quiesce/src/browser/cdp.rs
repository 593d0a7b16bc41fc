//! A conversation with a browser over its debugging protocol: one question, one answer.

use super::endpoint::DebugEndpoint;
use super::error::BrowserError;
use crate::group::CommandPipe;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::io;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

/// A browser with hundreds of tabs describes them in less.
const LARGEST_ANSWER: usize = 16 << 20;

/// An open conversation.
#[derive(Debug)]
pub(super) struct Cdp {
    way: Way,
    last_id: u64,
}

/// How messages travel.
#[derive(Debug)]
enum Way {
    /// The debugging port, which every user of this host reaches.
    Socket(Box<WebSocketStream<TcpStream>>),
    /// Descriptors 3 and 4 of the browser, which nobody else has: a zero byte ends each message.
    Pipe {
        to: ChildStdin,
        from: BufReader<ChildStdout>,
        /// What was read of a message whose end has not come.
        begun: Vec<u8>,
    },
}

impl Cdp {
    pub(super) async fn connect(endpoint: &DebugEndpoint) -> Result<Self, BrowserError> {
        let stream = TcpStream::connect(endpoint.address).await;
        let stream = stream.map_err(SocketError::Io)?;
        let url = format!("ws://{}{}", endpoint.address, endpoint.path);
        let config = WebSocketConfig::default()
            .max_message_size(Some(LARGEST_ANSWER))
            .max_frame_size(Some(LARGEST_ANSWER));
        let connecting =
            tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await;
        let (socket, _) = connecting?;
        let way = Way::Socket(Box::new(socket));
        Ok(Self { way, last_id: 0 })
    }

    /// Speaks to a browser over its debugging pipe; what is asked before it listens waits there.
    pub(super) fn over(pipe: CommandPipe) -> Self {
        let way = Way::Pipe {
            to: pipe.to,
            from: BufReader::new(pipe.from),
            begun: Vec::new(),
        };
        Self { way, last_id: 0 }
    }

    /// Asks the browser, or one of its pages if `session` names one, and waits for the answer to this question.
    pub(super) async fn ask(
        &mut self,
        method: &'static str,
        parameters: Value,
        session: Option<&str>,
    ) -> Result<Value, BrowserError> {
        let id = self.send(method, parameters, session).await?;
        loop {
            let mut heard = self.heard(method).await?;
            // Events, and answers to questions that were given up, are of no interest.
            if heard["id"] == id {
                return answer(method, &mut heard);
            }
        }
    }

    /// Opens an address in a page, whose every request is answered with an empty document: nothing leaves this host.
    pub(super) async fn open_emptied(
        &mut self,
        address: &str,
        session: &str,
    ) -> Result<(), BrowserError> {
        let all = json!({"patterns": [{"urlPattern": "*"}]});
        self.ask("Fetch.enable", all, Some(session)).await?;
        let method = "Page.navigate";
        let id = self
            .send(method, json!({"url": address}), Some(session))
            .await?;
        loop {
            let mut heard = self.heard(method).await?;
            if heard["method"] == "Fetch.requestPaused" && heard["sessionId"] == session {
                let empty = json!({
                    "requestId": heard["params"]["requestId"],
                    "responseCode": 200,
                    "responseHeaders": [{"name": "Content-Type", "value": "text/html"}],
                    "body": "",
                });
                self.send("Fetch.fulfillRequest", empty, Some(session))
                    .await?;
            }
            if heard["id"] == id {
                let opened = answer(method, &mut heard)?;
                return match opened["errorText"].as_str() {
                    Some(error) => Err(refused(method, error)),
                    None => Ok(()),
                };
            }
        }
    }

    /// Sends a question; returns the number that its answer will have.
    async fn send(
        &mut self,
        method: &'static str,
        parameters: Value,
        session: Option<&str>,
    ) -> Result<u64, BrowserError> {
        self.last_id += 1;
        let id = self.last_id;
        let mut question = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            question["sessionId"] = session.into();
        }
        self.way.send(&question.to_string(), method).await?;
        Ok(id)
    }

    /// The next answer or event, while an answer to `method` is awaited.
    async fn heard(&mut self, method: &'static str) -> Result<Value, BrowserError> {
        let heard = self.way.next(method).await?;
        let heard = serde_json::from_slice::<Value>(&heard);
        heard.ok().ok_or(BrowserError::NotUnderstood { method })
    }
}

impl Way {
    async fn send(&mut self, question: &str, method: &'static str) -> Result<(), BrowserError> {
        match self {
            Self::Socket(socket) => Ok(socket.send(Message::text(question)).await?),
            Self::Pipe { to, .. } => {
                let message = [question.as_bytes(), b"\0"].concat();
                let sent = to.write_all(&message).await;
                sent.map_err(|error| broken(error, method))
            }
        }
    }

    async fn next(&mut self, method: &'static str) -> Result<Vec<u8>, BrowserError> {
        match self {
            Self::Socket(socket) => loop {
                let heard = socket.next().await;
                return match heard.transpose()? {
                    None | Some(Message::Close(_)) => Err(BrowserError::HungUp { method }),
                    Some(Message::Text(text)) => Ok(text.as_bytes().to_vec()),
                    Some(_) => continue,
                };
            },
            Self::Pipe { from, begun, .. } => loop {
                let read = from.fill_buf().await;
                let read = read.map_err(|error| broken(error, method))?;
                if read.is_empty() {
                    return Err(BrowserError::HungUp { method });
                }
                let end = read.iter().position(|byte| *byte == 0);
                begun.extend_from_slice(&read[..end.unwrap_or(read.len())]);
                let taken = end.map_or(read.len(), |end| end + 1);
                from.consume(taken);
                if begun.len() > LARGEST_ANSWER {
                    return Err(BrowserError::NotUnderstood { method });
                }
                if end.is_some() {
                    return Ok(std::mem::take(begun));
                }
            },
        }
    }
}

fn broken(error: io::Error, method: &'static str) -> BrowserError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => BrowserError::HungUp { method },
        _ => BrowserError::Pipe(error),
    }
}

fn answer(method: &'static str, heard: &mut Value) -> Result<Value, BrowserError> {
    match heard.get("error") {
        Some(error) => Err(refused(
            method,
            error["message"].as_str().unwrap_or_default(),
        )),
        None => Ok(heard["result"].take()),
    }
}

fn refused(method: &'static str, message: &str) -> BrowserError {
    let message = cut_short(message);
    BrowserError::Refused { method, message }
}

fn cut_short(message: &str) -> String {
    let plain = message.chars().filter(|c| !c.is_control());
    plain.take(200).collect()
}
