//! Demos: real files, the real engine, and nothing of the user's.
//!
//! [`Demo`] plays one scene after the other in a directory of its own, so that a surface can tell each as it ends. Every number of a
//! scene was counted or measured, and every claim is a [`DemoCheck`]: what was found by reading back with plain system calls, SQLite, a
//! server or a browser, never by asking the verb that is shown. A claim that does not hold does not end the demo; whoever shows it has to
//! say so.
//!
//! *Always true:* everything a demo writes is in its directory, which is closed to others and goes with the [`Demo`], however that ends,
//! unless it was to be kept. A `kill -9` leaves it.

mod browser;
mod container;
mod database;
pub mod lease;
mod postgres;
mod scene;
mod session;
mod shop;
mod stage;
mod tree_state;
mod working_tree;

pub use scene::{
    AccidentFacts, BrowserFacts, CheckpointsFacts, DemoCheck, DemoContainerFacts, DemoPart,
    DemoScene, PostgresFacts, RaceFacts, Racer, RewindFacts, SceneFacts, SessionFacts, ShopFacts,
    SkippedFacts, UndoFacts,
};
pub use stage::DemoSettings;

use crate::bridge;
use crate::error::Error;
use stage::DemoStage;
use stasis_model::rng::Rng;
use stasis_model::time::Clock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use working_tree::{Shown, WorkingTree, since};

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Shop,
    Git,
    Accident,
    Rewind,
    Checkpoints,
    Race,
    Undo,
    Session,
    Browser,
    Postgres,
    Container,
}

const ACTS: [Act; 11] = [
    Act::Shop,
    Act::Git,
    Act::Accident,
    Act::Rewind,
    Act::Checkpoints,
    Act::Race,
    Act::Undo,
    Act::Session,
    Act::Browser,
    Act::Postgres,
    Act::Container,
];

/// A demo that is being played.
pub struct Demo {
    stage: Arc<DemoStage>,
    tree: Option<WorkingTree>,
    next: usize,
}

impl Demo {
    /// Makes the directory.
    pub async fn begin(
        settings: DemoSettings,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Result<Self, Error> {
        let stage = bridge::blocking(move || DemoStage::make(settings, clock, rng)).await?;
        Ok(Self {
            stage: Arc::new(stage),
            tree: None,
            next: 0,
        })
    }

    /// Where it happens.
    pub fn directory(&self) -> &Path {
        &self.stage.home
    }

    /// Plays the next scene; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<DemoScene>, Error> {
        while let Some(act) = ACTS.get(self.next) {
            self.next += 1;
            self.stage.go_on()?;
            let started = self.stage.clock.uptime();
            if let Some((facts, checks)) = Box::pin(self.play(*act)).await? {
                let took_us = since(&self.stage, started);
                return Ok(Some(DemoScene {
                    facts,
                    checks,
                    took_us,
                }));
            }
        }
        Ok(None)
    }

    async fn play(&mut self, act: Act) -> Result<Option<Shown>, Error> {
        let skipped = |part, why: &str| {
            let why = why.to_owned();
            Some((SceneFacts::Skipped(SkippedFacts { part, why }), Vec::new()))
        };
        let shown = match (act, &mut self.tree) {
            (Act::Shop, _) => {
                let (tree, shown) = WorkingTree::open(self.stage.clone()).await?;
                self.tree = Some(tree);
                Some(shown)
            }
            (Act::Git, Some(tree)) if !tree.has_git() => skipped(
                DemoPart::Git,
                "git is not installed; the agent only deletes",
            ),
            (Act::Accident, Some(tree)) => Some(tree.accident().await?),
            (Act::Rewind, Some(tree)) => Some(tree.rewind().await?),
            (Act::Checkpoints, Some(tree)) => Some(tree.checkpoints().await?),
            (Act::Race, Some(tree)) => Some(tree.race().await?),
            (Act::Undo, Some(tree)) => Some(tree.undo().await?),
            (Act::Postgres, _) => Some(postgres::shown(&self.stage).await?),
            (Act::Browser, _) => Some(browser::shown(&self.stage).await?),
            (Act::Container, _) => Some(container::shown(&self.stage).await?),
            (Act::Session, _) => Some(session::shown(&self.stage).await?),
            _ => None,
        };
        Ok(shown)
    }

    /// Ends the demo; returns the directory if it is kept.
    pub async fn end(self) -> Result<Option<PathBuf>, Error> {
        let kept = self.stage.settings.keep.then(|| self.stage.home.clone());
        let stage = self.stage.clone();
        bridge::blocking(move || stage.clear()).await?;
        Ok(kept)
    }
}

#[cfg(test)]
mod tests;
