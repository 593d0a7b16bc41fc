//! Whether a service does its work.

use super::{Service, ServiceError, Status};
use crate::hook::{self, HookCommand};
use crate::invocation::Invocation;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};

/// What is tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// A command that ends with 0.
    Command(Invocation),
    /// A port that accepts: `host:port`.
    Tcp(String),
    /// A socket that accepts.
    Unix(PathBuf),
}

/// What is tried, how often and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthCheck {
    /// What is tried.
    pub probe: Probe,
    /// How long one try may take.
    pub timeout: Duration,
    /// How long is waited between two.
    pub interval: Duration,
    /// How long all of them may take.
    pub total_timeout: Duration,
}

impl HealthCheck {
    /// Tries of 5 s at most, every half second, for half a minute.
    pub fn new(probe: Probe) -> Self {
        Self {
            probe,
            timeout: Duration::from_secs(5),
            interval: Duration::from_millis(500),
            total_timeout: Duration::from_secs(30),
        }
    }

    /// Tries once.
    async fn attempt(&self, limit: Duration) -> Result<(), String> {
        let connected = match &self.probe {
            Probe::Command(call) => return attempt_command(call, limit).await,
            Probe::Tcp(address) => timeout(limit, TcpStream::connect(address))
                .await
                .map(drop_ok),
            Probe::Unix(path) => timeout(limit, UnixStream::connect(path)).await.map(drop_ok),
        };
        match connected {
            Ok(connected) => connected.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {limit:?}")),
        }
    }
}

fn drop_ok<T>(connected: std::io::Result<T>) -> std::io::Result<()> {
    connected.map(drop)
}

async fn attempt_command(call: &Invocation, timeout: Duration) -> Result<(), String> {
    let hook = HookCommand {
        call: call.clone(),
        timeout,
    };
    match hook::run(&hook).await {
        Ok(outcome) if outcome.succeeded() => Ok(()),
        Ok(outcome) => Err(format!(
            "{:?}: {}",
            outcome.ending,
            outcome.stderr.text().trim()
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// A service does its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Healthy {
    /// The try that succeeded, counted from 1.
    pub attempts: u32,
    /// How long it took.
    pub elapsed: Duration,
}

impl Service {
    /// Tries until the service does its work. One that has ended is not waited for.
    pub async fn health(&self, check: &HealthCheck) -> Result<Healthy, ServiceError> {
        let began = Instant::now();
        let (mut attempts, mut reason) = (0, String::new());
        loop {
            attempts += 1;
            let left = check.total_timeout.saturating_sub(began.elapsed());
            let tried = check.attempt(check.timeout.min(left)).await;
            let service = self.name.clone();
            // Something else may answer in place of a service that does not run.
            if self.status().await == Status::Stopped {
                return Err(ServiceError::NotRunning { service });
            }
            let Err(last) = tried else {
                let elapsed = began.elapsed();
                return Ok(Healthy { attempts, elapsed });
            };
            // A try that only the end of the time cut short says nothing: the one before it does.
            let is_cut = left < check.timeout && began.elapsed() >= check.total_timeout;
            if !is_cut || reason.is_empty() {
                reason = last;
            }
            if began.elapsed() + check.interval >= check.total_timeout {
                return Err(ServiceError::Unhealthy {
                    service,
                    total_timeout: check.total_timeout,
                    attempts,
                    last: reason,
                });
            }
            tokio::time::sleep(check.interval).await;
        }
    }
}
