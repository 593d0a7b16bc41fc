//! A conversation with a browser over its debugging protocol: one question, one answer.

use super::endpoint::DebugEndpoint;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use stasis_model::failure::Failure;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

/// A browser with hundreds of tabs describes them in less.
const LARGEST_ANSWER: usize = 16 << 20;

/// Why a browser could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CdpError {
    /// It is not known whether a browser runs.
    #[error("could not find the browser")]
    Users(#[from] Failure),
    /// No browser runs in the directory.
    #[error("no browser is running in the directory")]
    NotRunning,
    /// It has no debugging port, or did not write it down.
    #[error("the browser has no debugging port")]
    NoPort,
    /// The port that was written down is not this browser's.
    #[error(
        "port {port} is written down as the debugging port, but the browser does not listen there"
    )]
    NotItsPort {
        /// Which port.
        port: u16,
    },
    /// It did not accept the connection, or broke it.
    #[error("could not speak to the browser over its debugging port")]
    Connection(#[source] Box<SocketError>),
    /// It hung up.
    #[error("the browser hung up before it answered `{method}`")]
    HungUp {
        /// What it was asked.
        method: &'static str,
    },
    /// It said no.
    #[error("the browser refused `{method}`: {message}")]
    Refused {
        /// What it was asked.
        method: &'static str,
        /// Its words, cut short.
        message: String,
    },
    /// Its answer lacks what was asked for.
    #[error("the browser's answer to `{method}` was not understood")]
    NotUnderstood {
        /// What it was asked.
        method: &'static str,
    },
    /// It took too long.
    #[error("the browser did not answer within {limit:?}")]
    Silent {
        /// How long we waited.
        limit: Duration,
    },
}

fn broken(error: SocketError) -> CdpError {
    CdpError::Connection(Box::new(error))
}

/// An open conversation.
#[derive(Debug)]
pub(super) struct Cdp {
    socket: WebSocketStream<TcpStream>,
    last_id: u64,
}

impl Cdp {
    pub(super) async fn connect(endpoint: &DebugEndpoint) -> Result<Self, CdpError> {
        let stream = TcpStream::connect(endpoint.address).await;
        let stream = stream.map_err(|source| broken(SocketError::Io(source)))?;
        let url = format!("ws://{}{}", endpoint.address, endpoint.path);
        let config = WebSocketConfig::default()
            .max_message_size(Some(LARGEST_ANSWER))
            .max_frame_size(Some(LARGEST_ANSWER));
        let connecting =
            tokio_tungstenite::client_async_with_config(url, stream, Some(config)).await;
        let (socket, _) = connecting.map_err(broken)?;
        Ok(Self { socket, last_id: 0 })
    }

    /// Asks the browser, or one of its pages if `session` names one, and waits for the answer to this question.
    pub(super) async fn ask(
        &mut self,
        method: &'static str,
        parameters: Value,
        session: Option<&str>,
    ) -> Result<Value, CdpError> {
        self.last_id += 1;
        let id = self.last_id;
        let mut question = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            question["sessionId"] = session.into();
        }
        let question = Message::text(question.to_string());
        self.socket.send(question).await.map_err(broken)?;
        loop {
            let heard = self.socket.next().await;
            let heard = match heard.transpose().map_err(broken)? {
                None | Some(Message::Close(_)) => return Err(CdpError::HungUp { method }),
                Some(Message::Text(text)) => serde_json::from_str::<Value>(&text),
                Some(_) => continue,
            };
            let mut heard = heard.map_err(|_| CdpError::NotUnderstood { method })?;
            // Events, and answers to questions that were given up, are of no interest.
            if heard["id"] != id {
                continue;
            }
            return match heard.get("error") {
                Some(error) => Err(CdpError::Refused {
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
