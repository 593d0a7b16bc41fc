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
        self.last_id += 1;
        let id = self.last_id;
        let mut question = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            question["sessionId"] = session.into();
        }
        let question = Message::text(question.to_string());
        self.socket.send(question).await?;
        loop {
            let heard = self.socket.next().await;
            let heard = match heard.transpose()? {
                None | Some(Message::Close(_)) => return Err(BrowserError::HungUp { method }),
                Some(Message::Text(text)) => serde_json::from_str::<Value>(&text),
                Some(_) => continue,
            };
            let mut heard = heard.ok().ok_or(BrowserError::NotUnderstood { method })?;
            // Events, and answers to questions that were given up, are of no interest.
            if heard["id"] != id {
                continue;
            }
            return match heard.get("error") {
                Some(error) => Err(BrowserError::Refused {
                    method,
                    message: cut_short(error["message"].as_str().unwrap_or_default()),
                }),
                None => Ok(heard["result"].take()),
            };
        }
    }
}

fn cut_short(message: &str) -> String {
    let plain = message.chars().filter(|c| !c.is_control());
    plain.take(200).collect()
}
