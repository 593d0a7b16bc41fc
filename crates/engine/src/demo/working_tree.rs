//! The shop as a workspace: an agent destroys it, and everything comes back.

use super::database::ShopDatabase;
use super::scene::{
    AccidentFacts, CheckpointsFacts, DemoCheck, RaceFacts, Racer, RewindFacts, SceneFacts,
    ShopFacts, UndoFacts,
};
use super::shop;
use super::stage::DemoStage;
use super::tree_state::{DemoTreeState, allocated};
use crate::bridge;
use crate::error::{Error, ErrorKind};
use crate::kind::workspace::{
    CreateCheckpoint, ForkPlace, ForkWorkspace, InitWorkspace, MaterializeCheckpoint, PromoteFork,
    RestoreWorkspace, RunMode, SessionForm, UndoChange, Workspace,
};
use stasis_model::failure::Failure;
use stasis_model::workspace::{AgentCall, AgentEventKind, CheckpointRef, EventText};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How many checkpoints are made to see what they cost.
const CHECKPOINTS: u32 = 60;
/// The one of them that is written out and compared.
const COMPARED: u32 = 30;

/// What the agent is asked, and what it does then.
const PROMPT: &str = "tidy up the repository";
const COMMAND: &str = "git clean -fdx && rm -rf src data";
/// The same where there is no Git to call.
const COMMAND_WITHOUT_GIT: &str = "rm -rf src data";

/// What is tried in the three forks, to make the report of open orders faster.
const IDEAS: [(&str, &str); 3] = [
    ("compact the file", "vacuum"),
    (
        "move invoices to their own table",
        "create table invoices as select id, invoice from orders; alter table orders drop column invoice; vacuum",
    ),
    (
        "add an index",
        "create index open_orders on orders (status, total_cents)",
    ),
];

/// What a scene shows, and what was verified of it.
pub(super) type Shown = (SceneFacts, Vec<DemoCheck>);

/// The shop, known as a workspace.
pub(super) struct WorkingTree {
    stage: Arc<DemoStage>,
    dir: PathBuf,
    workspace: Workspace,
    has_git: bool,
    /// The shop as it was read when it was last known to be right.
    good: Arc<DemoTreeState>,
    orders: u64,
    /// The shop before a fork was promoted, and after.
    promoted: Option<(Arc<DemoTreeState>, Arc<DemoTreeState>)>,
}

impl WorkingTree {
    /// Makes the shop and its first checkpoint.
    pub(super) async fn open(stage: Arc<DemoStage>) -> Result<(Self, Shown), Error> {
        let dir = stage.at("shop");
        let has_git = stage.program("git").is_some();
        let (made, at) = (stage.clone(), dir.clone());
        let uncommitted = bridge::blocking(move || make(&made, &at, has_git)).await?;
        let host = stage.host_env();
        let init = InitWorkspace {
            directory: dir.clone(),
            session: None,
            system: None,
            budget: None,
        };
        let started = stage.clock.uptime();
        Workspace::init(init, &host).await?;
        let workspace = Workspace::find(&dir, &host).await?;
        let first = CreateCheckpoint::automatic(crate::kind::workspace::Maker::Cli);
        let first = workspace.create(first).await?;
        let checkpoint_us = since(&stage, started);
        let good = read(&dir).await?;
        let database = ShopDatabase::of(&dir);
        let orders = bridge::blocking(move || database.orders()).await?;
        let facts = ShopFacts {
            files: good.count(),
            bytes: good.bytes,
            orders,
            uncommitted,
            checkpoint: first.checkpoint,
            checkpoint_us,
        };
        let checks = vec![DemoCheck::new(
            "bytes in the checkpoint",
            good.bytes,
            first.bytes,
        )];
        let tree = Self {
            stage,
            dir,
            workspace,
            has_git,
            good,
            orders,
            promoted: None,
        };
        Ok((tree, (SceneFacts::Shop(facts), checks)))
    }

    /// Whether there is a Git to call.
    pub(super) fn has_git(&self) -> bool {
        self.has_git
    }

    /// An agent deletes nearly everything.
    pub(super) async fn accident(&mut self) -> Result<Shown, Error> {
        let in_git = if self.has_git {
            Some(self.in_git().await?)
        } else {
            None
        };
        let checkpoint_us = self.prompt(PROMPT).await?.1;
        let command = if self.has_git {
            COMMAND
        } else {
            COMMAND_WITHOUT_GIT
        };
        let (stage, dir) = (self.stage.clone(), self.dir.clone());
        bridge::blocking(move || stage.run(&dir, &["sh", "-c", command])).await?;
        let left = read(&self.dir).await?;
        let has_database = ShopDatabase::of(&self.dir).exists();
        let facts = AccidentFacts {
            prompt: PROMPT.to_owned(),
            command: command.to_owned(),
            checkpoint_us,
            files_before: self.good.count(),
            files_left: left.count(),
            in_git,
            has_database,
        };
        let checks = vec![DemoCheck::new("the database is gone", false, has_database)];
        Ok((SceneFacts::Accident(facts), checks))
    }

    /// Back to before the last prompt.
    pub(super) async fn rewind(&mut self) -> Result<Shown, Error> {
        let started = self.stage.clock.uptime();
        let prompt = self.workspace.last_prompt().await?;
        let restored = self.workspace.restore(whole(&prompt.checkpoint)?).await?;
        let restore_us = since(&self.stage, started);
        let (found, mut checks) = self.verified(&self.good).await?;
        let (orders, integrity) = self.database().await?;
        checks.push(DemoCheck::new("orders", self.orders, orders));
        checks.push(DemoCheck::new("PRAGMA integrity_check", "ok", &integrity));
        let facts = RewindFacts {
            checkpoint: restored.checkpoint,
            files: self.good.same(&found),
            orders,
            integrity,
            restore_us,
        };
        Ok((SceneFacts::Rewind(facts), checks))
    }

    /// Many prompts, each with an edit and an order; one of the checkpoints is written out and compared.
    pub(super) async fn checkpoints(&mut self) -> Result<Shown, Error> {
        let before = self.held().await?;
        let (mut times, mut copies_bytes) = (Vec::new(), 0);
        let mut middle = None;
        for number in 1..=CHECKPOINTS {
            self.stage.go_on()?;
            let dir = self.dir.clone();
            bridge::blocking(move || {
                shop::edit(&dir, number)?;
                ShopDatabase::of(&dir).send_order(number)
            })
            .await?;
            let (made, took_us) = self.prompt(&format!("step {number}")).await?;
            times.push(took_us);
            copies_bytes += made.bytes;
            if number == COMPARED {
                middle = Some((made.checkpoint, read(&self.dir).await?));
            }
        }
        times.sort_unstable();
        let held_bytes = self.held().await?;
        let listed = self.workspace.list(false).await?.snapshots;
        let kept = listed.iter().filter(|row| is_step(row)).count() as u64;
        let mut checks = vec![DemoCheck::new("checkpoints in the list", CHECKPOINTS, kept)];
        let (compared, was) = middle.expect("the middle one was made");
        checks.push(self.compared(&compared, &was).await?);
        self.good = read(&self.dir).await?;
        let facts = CheckpointsFacts {
            checkpoints: kept,
            median_us: times[times.len() / 2],
            copies_bytes,
            added_bytes: held_bytes.saturating_sub(before),
            held_bytes,
            compared,
        };
        Ok((SceneFacts::Checkpoints(facts), checks))
    }

    /// Three forks try to make a report faster; the fastest becomes the workspace.
    pub(super) async fn race(&mut self) -> Result<Shown, Error> {
        let (before, report_ns_before) = self.report(&self.dir).await?;
        let started = self.stage.clock.uptime();
        let forked = self.workspace.fork(three_forks()).await?;
        let fork_us = since(&self.stage, started);
        let mut checks = Vec::new();
        let mut racers = Vec::new();
        let places = forked.names.iter().zip(&forked.directories);
        for ((name, directory), (idea, statements)) in places.zip(IDEAS) {
            self.stage.go_on()?;
            let directory = PathBuf::from(directory);
            let database = ShopDatabase::of(&directory);
            bridge::blocking(move || database.run(statements)).await?;
            let (answer, report_ns) = self.report(&directory).await?;
            checks.push(DemoCheck::new(
                &format!("the report of {name}"),
                &before,
                answer,
            ));
            racers.push((
                directory,
                Racer {
                    fork: name.clone(),
                    idea: idea.to_owned(),
                    report_ns,
                },
            ));
        }
        let fastest = racers.iter().min_by_key(|(_, racer)| racer.report_ns);
        let (directory, winner) = fastest.cloned().ok_or_else(no_fork)?;
        let (was, becomes) = (read(&self.dir).await?, read(&directory).await?);
        let started = self.stage.clock.uptime();
        self.workspace.promote(promotion(&winner.fork)?).await?;
        let promote_us = since(&self.stage, started);
        checks.extend(self.verified(&becomes).await?.1);
        let (answer, report_ns_after) = self.report(&self.dir).await?;
        checks.push(DemoCheck::new(
            "the report of the workspace",
            &before,
            answer,
        ));
        checks.push(DemoCheck::new(
            "orders",
            self.orders,
            self.database().await?.0,
        ));
        self.promoted = Some((was, becomes));
        let facts = RaceFacts {
            fork_us,
            racers: racers.into_iter().map(|(_, racer)| racer).collect(),
            report_ns_before,
            winner: winner.fork,
            report_ns_after,
            promote_us,
        };
        Ok((SceneFacts::Race(facts), checks))
    }

    /// The promotion is taken back, and that too.
    pub(super) async fn undo(&mut self) -> Result<Shown, Error> {
        let (was, became) = self.promoted.take().ok_or_else(no_fork)?;
        let started = self.stage.clock.uptime();
        self.workspace.undo(last_change()).await?;
        let undo_us = since(&self.stage, started);
        let mut checks = self.verified(&was).await?.1;
        let started = self.stage.clock.uptime();
        self.workspace.undo(last_change()).await?;
        let redo_us = since(&self.stage, started);
        checks.extend(self.verified(&became).await?.1);
        let (orders, integrity) = self.database().await?;
        checks.push(DemoCheck::new("orders", self.orders, orders));
        checks.push(DemoCheck::new("PRAGMA integrity_check", "ok", integrity));
        Ok((SceneFacts::Undo(UndoFacts { undo_us, redo_us }), checks))
    }
}

impl WorkingTree {
    /// Makes the checkpoint that a hook makes before a prompt; says how long it took.
    async fn prompt(
        &self,
        text: &str,
    ) -> Result<(crate::kind::workspace::Checkpointed, u64), Error> {
        let line = |text: &str| EventText::first_line(text);
        let call = AgentCall {
            kind: AgentEventKind::Prompt,
            agent: line("demo-agent").expect("it is a line"),
            session: None,
            turn_id: None,
            text: line(text),
        };
        let started = self.stage.clock.uptime();
        let made = self
            .workspace
            .create(CreateCheckpoint::before(call))
            .await?;
        Ok((made, since(&self.stage, started)))
    }

    /// Reads the shop back, and compares it with what it was when it was last known to be right.
    #[cfg(test)]
    pub(super) async fn still_good(&self) -> Result<Vec<DemoCheck>, Error> {
        Ok(self.verified(&self.good).await?.1)
    }

    /// Reads the shop back: every file has to be what it was.
    async fn verified(
        &self,
        expected: &Arc<DemoTreeState>,
    ) -> Result<(Arc<DemoTreeState>, Vec<DemoCheck>), Error> {
        let found = read(&self.dir).await?;
        let checks = vec![
            DemoCheck::new(
                "files as they were",
                expected.count(),
                expected.same(&found),
            ),
            DemoCheck::new(
                "files that differ, with those of Git",
                0,
                expected.differences(&found),
            ),
        ];
        Ok((found, checks))
    }

    /// Writes a checkpoint out beside the shop, and compares it with what the shop was then.
    async fn compared(&self, checkpoint: &str, was: &DemoTreeState) -> Result<DemoCheck, Error> {
        let directory = self.stage.at("compared");
        let command = MaterializeCheckpoint {
            checkpoint: reference(checkpoint)?,
            directory: directory.clone(),
            run: RunMode::Real,
        };
        self.workspace.materialize(command).await?;
        let found = read(&directory).await?;
        let claim = format!("files of {checkpoint} that differ");
        Ok(DemoCheck::new(&claim, 0, was.differences(&found)))
    }

    /// The orders, and what SQLite says of the database.
    async fn database(&self) -> Result<(u64, String), Error> {
        let database = ShopDatabase::of(&self.dir);
        bridge::blocking(move || Ok((database.orders()?, database.integrity()?))).await
    }

    async fn report(&self, shop: &Path) -> Result<(String, u64), Error> {
        let (database, clock) = (ShopDatabase::of(shop), self.stage.clock.clone());
        bridge::blocking(move || database.report(&*clock)).await
    }

    /// What the checkpoints take of the disk. Where they are clones, the lengths of their files say nothing: shared blocks count once.
    async fn held(&self) -> Result<u64, Error> {
        let status = self.workspace.status().await?;
        if status.form == SessionForm::Clone {
            return self.workspace.measured_bytes().await;
        }
        let session = PathBuf::from(status.session);
        bridge::blocking(move || allocated(&session)).await
    }

    /// How many files of the shop are in the last commit as they are now.
    async fn in_git(&self) -> Result<u64, Error> {
        let (stage, dir) = (self.stage.clone(), self.dir.clone());
        bridge::blocking(move || {
            let lines =
                |words: &[&str]| Ok::<_, Error>(stage.run(&dir, words)?.lines().count() as u64);
            let known = lines(&["git", "ls-files"])?;
            Ok(known - lines(&["git", "diff", "--name-only"])?)
        })
        .await
    }
}

/// Makes the shop; says how many files are in no commit as they are.
fn make(stage: &DemoStage, dir: &Path, has_git: bool) -> Result<Option<u64>, Error> {
    shop::write_committed(dir)?;
    ShopDatabase::of(dir).fill()?;
    if has_git {
        stage.run(dir, &["git", "init", "-q", "-b", "main", "--template="])?;
        stage.run(dir, &["git", "add", "."])?;
        stage.run(dir, &["git", "commit", "-q", "-m", "the shop"])?;
        // Hundreds of small files less in every fork, which some disks take seconds to delete.
        stage.run(dir, &["git", "repack", "-a", "-d", "-q"])?;
    }
    shop::write_uncommitted(dir)?;
    if !has_git {
        return Ok(None);
    }
    let new = stage.run(dir, &["git", "ls-files", "--others"])?;
    let changed = stage.run(dir, &["git", "diff", "--name-only"])?;
    Ok(Some((new.lines().count() + changed.lines().count()) as u64))
}

async fn read(directory: &Path) -> Result<Arc<DemoTreeState>, Error> {
    let directory = directory.to_owned();
    bridge::blocking(move || DemoTreeState::read(&directory).map(Arc::new)).await
}

fn is_step(row: &crate::kind::workspace::CheckpointRow) -> bool {
    let events = &row.agent_events;
    events.iter().any(|event| {
        event
            .text
            .as_deref()
            .is_some_and(|text| text.starts_with("step "))
    })
}

fn reference(checkpoint: &str) -> Result<CheckpointRef, Error> {
    checkpoint.parse().map_err(|error| {
        Failure::new(ErrorKind::Bug, "name the checkpoint", checkpoint)
            .because(error)
            .into()
    })
}

fn whole(checkpoint: &str) -> Result<RestoreWorkspace, Error> {
    Ok(RestoreWorkspace {
        checkpoint: reference(checkpoint)?,
        except: Vec::new(),
        no_undo: false,
        agreed: true,
        confirm: None,
        run: RunMode::Real,
    })
}

fn three_forks() -> ForkWorkspace {
    ForkWorkspace {
        from: None,
        name: None,
        place: ForkPlace::Beside,
        count: u32::try_from(IDEAS.len()).unwrap_or_default(),
        run: RunMode::Real,
    }
}

fn promotion(fork: &str) -> Result<PromoteFork, Error> {
    let unfit = |error| Failure::new(ErrorKind::Bug, "name the fork", fork).because(error);
    Ok(PromoteFork {
        fork: fork.parse().map_err(unfit)?,
        except: Vec::new(),
        keep_own: false,
        agreed: true,
        confirm: None,
        run: RunMode::Real,
    })
}

fn last_change() -> UndoChange {
    UndoChange {
        which: None,
        except: Vec::new(),
        agreed: true,
        confirm: None,
        run: RunMode::Real,
    }
}

fn no_fork() -> Error {
    Failure::of(ErrorKind::Bug, "there is no fork to promote").into()
}

/// Microseconds since a moment.
pub(super) fn since(stage: &DemoStage, started: Duration) -> u64 {
    let took = stage.clock.uptime().saturating_sub(started);
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}
