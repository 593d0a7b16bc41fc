//! A conversation with a browser over its debugging protocol: one question, one answer.

use super::endpoint::DebugEndpoint;
use super::error::BrowserError;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

/// A browser with hundreds of tabs describes them in less.
const LARGEST_ANSWER: usize = 16 << 20;

/// An open conversation.
#[derive(Debug)]
pub(super) struct Cdp {
    socket: WebSocketStream<TcpStream>,
    last_id: u64,
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
        Ok(Self { socket, last_id: 0 })
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
        self.socket
            .send(Message::text(question.to_string()))
            .await?;
        Ok(id)
    }

    /// The next answer or event, while an answer to `method` is awaited.
    async fn heard(&mut self, method: &'static str) -> Result<Value, BrowserError> {
        loop {
            let heard = self.socket.next().await;
            return match heard.transpose()? {
                None | Some(Message::Close(_)) => Err(BrowserError::HungUp { method }),
                Some(Message::Text(text)) => {
                    let heard = serde_json::from_str::<Value>(&text);
                    heard.ok().ok_or(BrowserError::NotUnderstood { method })
                }
                Some(_) => continue,
            };
        }
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
