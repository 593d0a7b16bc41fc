//! An agent's session: its sandbox is ended because nobody uses it, and it wakes on another host where it left off.

use super::scene::{DemoCheck, DemoPart, SceneFacts, SessionFacts, SkippedFacts};
use super::stage::DemoStage;
use super::tree_state::DemoTreeState;
use super::working_tree::{Shown, since};
use crate::bridge;
use crate::error::Error;
use crate::kind::session::{
    ReapSessions, RegisterSession, SandboxRequest, SandboxRequestDriver, SessionHost, SleptState,
    WakeOutcome, WakeSession,
};
use stasis_disk::fs::atomic_write::{make_directory, replace_unsynced};
use stasis_disk::fs::remove;
use stasis_model::failure::AtPath;
use stasis_model::id::SessionRef;
use stasis_model::session::document::SandboxCommands;
use stasis_quiesce::docker::Docker;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How many answers the agent has written.
const ANSWERS: u64 = 40;

pub(super) async fn shown(stage: &Arc<DemoStage>) -> Result<Shown, Error> {
    let Some(program) = stage.program("sleep") else {
        return Ok(skipped("there is no `sleep` that could be an agent"));
    };
    let dir = stage.at("session");
    let (place, mut agent) = (dir.clone(), Agent::start(&program)?);
    let before = bridge::blocking(move || write_answers(&place)).await?;
    let session: SessionRef = "demo/42".parse().expect("a constant that is a session");
    let (here, engine) = (host(stage, "host"), stage.engine("host").await?);
    let register = registration(&session, dir.clone(), agent.0.id());
    engine.sessions().register(&here, register).await?;
    let started = stage.clock.uptime();
    let reaped = Box::pin(engine.sessions().reap(&here, &ReapSessions::default())).await?;
    let sleep_us = since(stage, started);
    let slept = reaped.items.first().map(|one| one.slept.state);
    let mut checks = vec![
        DemoCheck::new(
            "the session sleeps",
            true,
            slept == Some(SleptState::Sleeping),
        ),
        DemoCheck::new("its sandbox is gone", true, agent.has_ended()?),
    ];
    let gone = dir.clone();
    bridge::blocking(move || remove::tree_at(&gone).at("remove", &gone)).await?;
    stage.go_on()?;
    let (there, elsewhere) = (host(stage, "other"), stage.at("other-session"));
    let wake = WakeSession {
        dir: Some(elsewhere.clone()),
        ..WakeSession::new(session)
    };
    let engine = stage.engine("other").await?;
    let started = stage.clock.uptime();
    let woken = Box::pin(engine.sessions().wake(&there, &wake)).await?;
    let wake_us = since(stage, started);
    let found = bridge::blocking(move || DemoTreeState::read(&elsewhere)).await?;
    let is_restored = woken.outcome == WakeOutcome::Restored;
    checks.push(DemoCheck::new(
        "it is restored, and not fresh",
        true,
        is_restored,
    ));
    checks.push(DemoCheck::new(
        "files that differ",
        0,
        before.differences(&found),
    ));
    let facts = SessionFacts {
        files: found.count(),
        bytes: found.bytes,
        sleep_us,
        wake_us,
    };
    Ok((SceneFacts::Session(facts), checks))
}

fn registration(session: &SessionRef, dir: PathBuf, pid: u32) -> RegisterSession {
    RegisterSession {
        session: session.clone(),
        dir,
        roots: None,
        sandbox: Some(SandboxRequest {
            name: "pod-7".parse().expect("a constant that is a name"),
            driver: SandboxRequestDriver::Process(Some(pid)),
            commands: SandboxCommands::default(),
        }),
        idle_timeout: Some(Duration::ZERO),
    }
}

fn skipped(why: &str) -> Shown {
    let (part, why) = (DemoPart::Session, why.to_owned());
    (SceneFacts::Skipped(SkippedFacts { part, why }), Vec::new())
}

fn host(stage: &DemoStage, name: &str) -> SessionHost {
    let label = || name.parse().expect("a constant that is a label");
    SessionHost {
        name: label(),
        by: label(),
        state: Some(stage.at(name).join("state")),
        docker: Docker::default(),
    }
}

/// What the agent has done so far.
fn write_answers(dir: &Path) -> Result<DemoTreeState, Error> {
    let outputs = dir.join("outputs");
    make_directory(&outputs)?;
    for number in 0..ANSWERS {
        let text = format!("answer {number}\n").repeat(200);
        replace_unsynced(
            &outputs.join(format!("answer-{number}.md")),
            text.as_bytes(),
        )?;
    }
    DemoTreeState::read(dir)
}

/// A process that stands for an agent; it ends with the demo at the latest.
struct Agent(Child);

impl Agent {
    fn start(program: &PathBuf) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command
            .arg("600")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Ok(Self(command.spawn().at("start", program)?))
    }

    fn has_ended(&mut self) -> Result<bool, Error> {
        Ok(self
            .0
            .try_wait()
            .on("wait for process", self.0.id())?
            .is_some())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
