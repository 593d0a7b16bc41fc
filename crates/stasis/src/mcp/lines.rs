//! Messages as lines of JSON: what is no message gets an answer too.
//!
//! A line is read, up to a bound; then it is one of these:
//!
//! | line | answer |
//! |---|---|
//! | no JSON | `-32700`, id null |
//! | longer than the bound | `-32600` with the id, if its beginning has one, else `-32700`, id null |
//! | JSON, but no object | `-32600`, id null |
//! | a request whose `params` are no object | `-32602` with its id |
//! | a request that cannot be read otherwise | `-32600` with its id |
//! | a notification or an answer that cannot be read | none, as JSON-RPC wants |
//! | a message | handed on |
//!
//! *Always true:* lines are written whole: an answer of ours is a task of its own, which nobody cancels between two bytes.

use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Mutex;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;

/// Reads and writes lines.
pub(super) struct Lines<R, W> {
    read: BufReader<R>,
    /// The line so far; kept here because a reading may be cancelled at any time.
    line: Vec<u8>,
    /// Whether the line is longer than the bound, and so is not kept further.
    is_too_long: bool,
    longest: usize,
    write: Arc<Mutex<Option<W>>>,
}

/// What a line turned out to be.
enum Heard {
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    Refused {
        id: Value,
        code: i32,
        message: String,
    },
    Nothing,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    pub(super) fn new(read: R, write: W, longest: usize) -> Self {
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            is_too_long: false,
            longest,
            write: Arc::new(Mutex::new(Some(write))),
        }
    }

    /// Reads on until the line is at its end; whether there is one.
    async fn read_line(&mut self) -> io::Result<bool> {
        loop {
            // Nothing is awaited between looking and consuming, so that a cancelled reading loses no byte.
            let available = self.read.fill_buf().await?;
            if available.is_empty() {
                return Ok(false);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            let room = self.longest.saturating_sub(self.line.len());
            self.is_too_long |= taken > room;
            self.line.extend_from_slice(&available[..taken.min(room)]);
            self.read.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    fn answer(&self, id: &Value, code: i32, message: &str) {
        let answer =
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
        let write = write_line(self.write.clone(), answer.to_string().into_bytes());
        tokio::spawn(async move {
            // Whoever is gone needs no answer.
            let _ = write.await;
        });
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let write = self.write.clone();
        async move { write_line(write, serde_json::to_vec(&item)?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            match self.read_line().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    tracing::error!(%error, "the client cannot be heard any more");
                    return None;
                }
            }
            let heard = heard(&self.line, self.is_too_long, self.longest);
            self.line.clear();
            self.is_too_long = false;
            match heard {
                Heard::Message(message) => return Some(*message),
                Heard::Refused { id, code, message } => self.answer(&id, code, &message),
                Heard::Nothing => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

async fn write_line<W: AsyncWrite + Unpin>(
    write: Arc<Mutex<Option<W>>>,
    mut line: Vec<u8>,
) -> io::Result<()> {
    line.push(b'\n');
    let mut write = write.lock().await;
    let write = write.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    write.write_all(&line).await?;
    write.flush().await
}

fn refused(id: Value, code: i32, message: impl Into<String>) -> Heard {
    let message = message.into();
    Heard::Refused { id, code, message }
}

fn heard(line: &[u8], is_too_long: bool, longest: usize) -> Heard {
    if is_too_long {
        let message = format!("a message has at most {longest} bytes");
        return match id_in(line) {
            Some(id) => refused(id, INVALID_REQUEST, message),
            None => refused(Value::Null, PARSE_ERROR, message),
        };
    }
    if line.trim_ascii().is_empty() {
        return Heard::Nothing;
    }
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => {
            return refused(
                Value::Null,
                PARSE_ERROR,
                format!("this is no JSON: {error}"),
            );
        }
    };
    let Value::Object(fields) = &value else {
        let message = "a message is an object; there are no batches";
        return refused(Value::Null, INVALID_REQUEST, message);
    };
    // Who sends no method, or no id, waits for no answer.
    let has_method = fields.contains_key("method");
    let id = fields.get("id").cloned().filter(|_| has_method);
    let params = fields.get("params");
    if let (Some(id), Some(params)) = (&id, params)
        && !params.is_object()
        && !params.is_null()
    {
        return refused(
            id_of(id),
            INVALID_PARAMS,
            "`params` is an object, or is left out",
        );
    }
    match serde_json::from_value(value) {
        Ok(message) => Heard::Message(Box::new(message)),
        Err(_) => match id {
            Some(id) => refused(
                id_of(&id),
                INVALID_REQUEST,
                "this is no request of JSON-RPC 2.0",
            ),
            None => Heard::Nothing,
        },
    }
}

/// An id that an answer may have.
fn id_of(id: &Value) -> Value {
    if id.is_string() || id.is_number() {
        return id.clone();
    }
    Value::Null
}

/// `id` at the top of a request whose end is missing.
fn id_in(line: &[u8]) -> Option<Value> {
    let mut found = FoundId(None);
    let mut reader = serde_json::Deserializer::from_slice(line);
    // What comes after the id may be cut off.
    let _ = reader.deserialize_map(&mut found);
    found.0.filter(|id| id.is_string() || id.is_number())
}

struct FoundId(Option<Value>);

impl<'de> Visitor<'de> for &mut FoundId {
    type Value = ();

    fn expecting(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "id" {
                self.0 = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id and the code of the answer to a line; nothing where it is handed on or ignored.
    fn answered(line: &str) -> Option<(Value, i32)> {
        match heard(line.as_bytes(), false, 1 << 20) {
            Heard::Refused { id, code, .. } => Some((id, code)),
            Heard::Message(_) | Heard::Nothing => None,
        }
    }

    #[test]
    fn what_is_no_message_is_answered_with_its_id_where_it_has_one() {
        let null = Value::Null;
        let cases = [
            ("{", null.clone(), PARSE_ERROR),
            ("nonsense", null.clone(), PARSE_ERROR),
            ("\u{feff}{}", null.clone(), PARSE_ERROR),
            ("[]", null.clone(), INVALID_REQUEST),
            ("5", null, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[]}"#,
                json!(7),
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":"x"}"#,
                json!("a"),
                INVALID_PARAMS,
            ),
            (
                r#"{"jsonrpc":"1.0","id":8,"method":"ping"}"#,
                json!(8),
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":9,"method":5}"#,
                json!(9),
                INVALID_REQUEST,
            ),
        ];
        for (line, id, code) in cases {
            assert_eq!(answered(line), Some((id, code)), "{line}");
        }
    }

    #[test]
    fn nobody_is_answered_who_did_not_ask() {
        for line in [
            "",
            "  \r",
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":[]}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
        ] {
            assert_eq!(answered(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_too_long_is_answered_to_whoever_began_it() {
        let long = |line: &str| match heard(line.as_bytes(), true, 1 << 20) {
            Heard::Refused { id, code, .. } => (id, code),
            Heard::Message(_) | Heard::Nothing => panic!("no answer"),
        };

        let begun = r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"yyyyyy"#;
        assert_eq!(long(begun), (json!(7), INVALID_REQUEST));
        assert_eq!(long(r#"{"params":{"x":"yyyy"#), (Value::Null, PARSE_ERROR));
        assert_eq!(long("xxxx"), (Value::Null, PARSE_ERROR));
    }
}
