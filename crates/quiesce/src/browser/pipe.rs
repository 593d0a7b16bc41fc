//! A browser that was started to be spoken to over its debugging pipe, which no other process of the host can use.

use super::cdp::Cdp;
use super::error::BrowserError;
use crate::group::CommandPipe;
use serde_json::json;

/// How a browser is told to use the pipe.
pub const PIPE_FLAG: &str = "--remote-debugging-pipe";

/// The conversation with it. The browser closes itself when this is dropped, or ends with this process.
#[derive(Debug)]
pub struct PipedBrowser {
    pub(super) cdp: Cdp,
}

impl PipedBrowser {
    /// A conversation over the descriptors of a command that was started with [`PIPE_FLAG`].
    pub fn new(pipe: CommandPipe) -> Self {
        let cdp = Cdp::over(pipe);
        Self { cdp }
    }

    /// Waits, for as long as it takes, until the browser answers.
    pub async fn ready(&mut self) -> Result<(), BrowserError> {
        let answered = self.cdp.ask("Browser.getVersion", json!({}), None);
        answered.await.map(|_| ())
    }
}
