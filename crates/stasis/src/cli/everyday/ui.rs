//! `stasis ui`

use super::words::TypedWords;
use crate::cli::serve::{OwnPage, until_stopped};
use crate::cli::{CliContext, system_rng};
use crate::http::{Listener, OwnDirectory};
use crate::mcp::Stop;
use crate::report::Exit;
use anyhow::{Context as _, bail};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::model::format::token::BearerToken;
use std::ffi::OsString;
use std::net::SocketAddr;

/// `stasis ui`
#[derive(Debug, Args)]
pub(in crate::cli) struct UiArgs {
    /// A directory, or `dir:NAME` as `stasis list` shows it [default: the directory you are in]
    #[arg(value_name = "DIRECTORY")]
    subject: Option<OsString>,
    /// Listen at this address of loopback; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// What `stasis ui` says when its page can be opened.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct PageOpened {
    /// The address and port.
    listen: String,
    /// What to open in a browser. It has a token in it that ends with the command: whoever has it may change this directory, and read and
    /// change what the store has of the default tenant.
    url: String,
}

impl UiArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let address = self.listen;
        if !address.ip().is_loopback() {
            bail!(
                "`{address}` is not on loopback: the page is for whoever works on this host; `stasis serve` is for others"
            );
        }
        let typed = TypedWords::read(context, self.subject.as_slice(), 0)?;
        if typed.profile().is_some() || typed.is_nowhere() {
            bail!("the page of one directory is shown; `stasis serve` has a page for every kind");
        }
        let directory = typed.directory(context).await?;
        let own = OwnDirectory {
            dir: directory.dir()?.to_owned(),
            host: context.environment.host_env()?,
            project: directory.project().ok().cloned(),
        };
        let stop = Stop::on_signals()?;
        let engine = match context.engine().await {
            // Of a directory that has only checkpoints, no store is missed.
            Err(error) if context.is_usual_store() && is_absent(&error) => {
                context.engine_in_memory().await?
            }
            engine => engine?,
        };
        let listener = Listener::open(address, None).await;
        let listener = listener.with_context(|| format!("could not listen at {address}"))?;
        let address = listener.address();
        let token = BearerToken::random(&*system_rng());
        let opened = PageOpened {
            listen: address.to_string(),
            // What stands behind the `#` is sent to nobody.
            url: format!("http://{address}/#token={}", token.reveal()),
        };
        let page = OwnPage {
            address,
            token,
            directory: own,
        };
        let service = page.service(context, engine)?;
        context.output.result(&opened, |one| {
            format!(
                "Open {}\nCtrl-C ends it, and the token in that address",
                one.url
            )
        })?;
        until_stopped(listener, service, stop, None).await;
        Ok(Exit::Done)
    }
}

fn is_absent(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::NotFound)
}
