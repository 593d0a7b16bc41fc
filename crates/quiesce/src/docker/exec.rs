//! Commands in a container that runs.

use super::client::Docker;
use super::error::CallError;
use super::pausing::check_container_name;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures_util::StreamExt as _;
use stasis_model::failure::Failure;
use std::time::Duration;

/// So much of what a command says is kept.
const LONGEST_OUTPUT: usize = 4096;

/// How a command in a container ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RanInContainer {
    /// Its exit code.
    pub code: i64,
    /// The beginning of what it said.
    pub output: String,
}

impl Docker {
    /// Runs a command of the shell in a container, for `limit` at most.
    pub async fn run_in(
        &self,
        container: &str,
        command: &str,
        limit: Duration,
    ) -> Result<RanInContainer, Failure> {
        self.work("run a command in container", container, async |client| {
            check_container_name(container)?;
            let words = ["/bin/sh", "-c", command].map(str::to_owned);
            let config = ExecConfig {
                attach_stdout: Some(true),
                attach_stderr: Some(true),
                cmd: Some(words.to_vec()),
                ..ExecConfig::default()
            };
            let exec = client.create_exec(container, config).await?;
            let running = run(&client, &exec.id);
            let Ok(output) = tokio::time::timeout(limit, running).await else {
                return Ok(RanInContainer {
                    code: -1,
                    output: format!("it did not end within {limit:?}"),
                });
            };
            let output = output?;
            let ended = client.inspect_exec(&exec.id).await?;
            Ok(RanInContainer {
                // One that never ran has none.
                code: ended.exit_code.unwrap_or(-1),
                output,
            })
        })
        .await
    }
}

/// Waits for its end; returns the beginning of what it said.
async fn run(client: &bollard::Docker, exec: &str) -> Result<String, CallError> {
    let mut said = Vec::new();
    if let StartExecResults::Attached { mut output, .. } = client.start_exec(exec, None).await? {
        while let Some(part) = output.next().await {
            let part = part?.into_bytes();
            let left = LONGEST_OUTPUT.saturating_sub(said.len()).min(part.len());
            said.extend_from_slice(&part[..left]);
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}
