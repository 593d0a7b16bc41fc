//! `stasis rewind`: back to before a prompt

use super::back::{exit_of, from_here, is_nothing, restored_text, warn};
use super::{DryRunArgs, WorkspaceSelector, entry};
use crate::cli::CliContext;
use crate::cli::ask::{self, is_interactive};
use crate::cli::change::ChangeArgs;
use crate::cli::output::{printable, table};
use crate::cli::progress::watched;
use crate::report::Exit;
use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::kind::workspace::{
    self, PromptRow, RestoreWorkspace, RestoredWorkspace, RunMode,
};
use stasis_engine::model::workspace::CheckpointRef;
use std::sync::Arc;

/// How many prompts are offered to choose from.
const OFFERED: usize = 20;

/// Makes the whole workspace what it was before a prompt of an agent.
#[derive(Debug, Args)]
pub(in crate::cli) struct RewindArgs {
    #[command(flatten)]
    which: WorkspaceSelector,
    /// How many prompts to go back, of those that `--list` shows: 1 is to before the last one, however often it is said [default: 1]
    #[arg(long, short = 'n', value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["to", "pick", "list"])]
    prompts: Option<u32>,
    /// Go to this checkpoint instead: cp-N, or its name
    #[arg(long, value_name = "CP", conflicts_with_all = ["pick", "list"])]
    to: Option<CheckpointRef>,
    /// Show the last prompts, and ask which one to go back to
    #[arg(long, conflicts_with = "list")]
    pick: bool,
    /// Only list the prompts that have a checkpoint, the newest first
    #[arg(long, conflicts_with_all = ["dry_run", "yes", "except"])]
    list: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    dry: DryRunArgs,
}

/// What became of it.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Rewound {
    /// The prompt that the workspace is as before; nothing when a checkpoint was named.
    prompt: Option<PromptRow>,
    #[serde(flatten)]
    restored: RestoredWorkspace,
}

impl RewindArgs {
    pub(in crate::cli) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let workspace = self.which.open(context).await?;
        if self.list {
            let all = workspace.prompts().await?;
            if all.is_empty() {
                context
                    .output
                    .say("no prompt is recorded in this workspace yet");
            }
            context.output.result(&all, |all| prompts_table(all))?;
            return Ok(Exit::Done);
        }
        let Some((checkpoint, prompt)) = self.target(context, &workspace).await? else {
            context.output.say(ask::NOTHING_CHANGED);
            return Ok(Exit::Cancelled);
        };
        let command = RestoreWorkspace {
            no_undo: false,
            checkpoint,
            except: self.change.except(|path| entry(&workspace, path))?,
            agreed: self.change.yes,
            confirm: None,
            run: self.dry.how(),
        };
        let Some(command) = self
            .agreed(context, &workspace, command, prompt.as_ref())
            .await?
        else {
            context.output.say(ask::NOTHING_CHANGED);
            return Ok(Exit::Cancelled);
        };
        let progress = Arc::default();
        let workspace = workspace.watched(Arc::clone(&progress)).await?;
        let work = workspace.restore(command);
        let restored = watched(context.output, "rewinding", progress, work).await?;
        warn(context, &restored);
        let exit = exit_of(&restored.left_alone);
        let rewound = Rewound { prompt, restored };
        let text = |rewound: &Rewound| from_here(rewound_text(rewound, self.back()), &workspace);
        context.output.result(&rewound, text)?;
        Ok(exit)
    }

    fn back(&self) -> u32 {
        self.prompts.unwrap_or(1)
    }

    /// The checkpoint to go to; `None` when the user chose none.
    async fn target(
        &self,
        context: &CliContext,
        workspace: &workspace::Workspace,
    ) -> anyhow::Result<Option<(CheckpointRef, Option<PromptRow>)>> {
        if let Some(checkpoint) = &self.to {
            return Ok(Some((checkpoint.clone(), None)));
        }
        if !self.pick
            && self.prompts.is_none()
            && let Some(checkpoint) = workspace.last_differing().await?
        {
            context.output.say(&format!(
                "no prompt of an agent is recorded: {checkpoint} is the newest checkpoint that differs"
            ));
            return Ok(Some((checkpoint, None)));
        }
        let prompt = match self.prompts {
            _ if self.pick => pick(context, workspace).await?,
            Some(back) => Some(workspace.prompt_before(back).await?),
            None => Some(workspace.last_prompt().await?),
        };
        let Some(prompt) = prompt else {
            return Ok(None);
        };
        let checkpoint = prompt.checkpoint.parse()?;
        Ok(Some((checkpoint, Some(prompt))))
    }

    /// The command as the user agreed to it: where there is a terminal, the plan is shown, and what is done is what was shown.
    async fn agreed(
        &self,
        context: &CliContext,
        workspace: &workspace::Workspace,
        command: RestoreWorkspace,
        prompt: Option<&PromptRow>,
    ) -> anyhow::Result<Option<RestoreWorkspace>> {
        if command.agreed || command.run == RunMode::Dry || !is_interactive(context) {
            return Ok(Some(command));
        }
        let look = RestoreWorkspace {
            run: RunMode::Dry,
            ..command.clone()
        };
        let shown = workspace.restore(look).await?;
        if is_nothing(&shown.plan) {
            return Ok(Some(command));
        }
        let confirm = Some(shown.plan.digest.clone());
        let shown = Rewound {
            prompt: prompt.cloned(),
            restored: shown,
        };
        context.output.insist(&rewound_text(&shown, self.back()));
        let is_yes = ask::is_yes("Continue?")?;
        Ok(is_yes.then_some(RestoreWorkspace { confirm, ..command }))
    }
}

/// Shows the last prompts and asks for one.
async fn pick(
    context: &CliContext,
    workspace: &workspace::Workspace,
) -> anyhow::Result<Option<PromptRow>> {
    anyhow::ensure!(
        is_interactive(context),
        "there is no terminal to choose on: `stasis rewind --list` shows the prompts, `--prompts N` goes back to one"
    );
    workspace.prompt_before(1).await?;
    let mut all = workspace.prompts().await?;
    all.truncate(OFFERED);
    context.output.insist(&prompts_table(&all));
    let answer = ask::answer("Go back to before which prompt? [number, or nothing]")?;
    if answer.is_empty() {
        return Ok(None);
    }
    let chosen = answer.parse::<u64>().ok();
    let chosen = all.into_iter().find(|one| Some(one.prompt) == chosen);
    let chosen = chosen.with_context(|| format!("`{}` is none of them", printable(&answer)))?;
    Ok(Some(chosen))
}

fn prompts_table(all: &[PromptRow]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let row = |(at, one): (usize, &PromptRow)| {
        vec![
            (at + 1).to_string(),
            one.prompt.to_string(),
            one.age.clone(),
            one.agent.clone(),
            one.commands.to_string(),
            one.checkpoint.clone(),
            one.text.clone().unwrap_or_default(),
        ]
    };
    // What `--prompts` takes comes first: it counts back from the last one.
    let head = [
        "BACK",
        "PROMPT",
        "AGE",
        "AGENT",
        "COMMANDS",
        "CHECKPOINT",
        "TEXT",
    ];
    table(&head, all.iter().enumerate().map(row).collect())
}

/// `prompt 3 (claude-code, 5 min ago): fix the tests`
fn prompt_text(prompt: &PromptRow) -> String {
    let text = prompt.text.as_deref().map(printable);
    let text = text.map_or_else(String::new, |text| format!(": {text}"));
    format!(
        "prompt {} ({}, {}){text}",
        prompt.prompt, prompt.agent, prompt.age
    )
}

fn rewound_text(rewound: &Rewound, back: u32) -> String {
    let restored = &rewound.restored;
    let Some(prompt) = &rewound.prompt else {
        return restored_text(restored);
    };
    let before = format!("before {}", prompt_text(prompt));
    if is_nothing(&restored.plan) {
        return format!(
            "Already there: the workspace is as it was {before} ({})\nfurther back: stasis rewind --prompts {}",
            restored.checkpoint,
            back.saturating_add(1)
        );
    }
    let late = prompt.late_ms.map(|late| {
        let seconds = late.div_ceil(1000);
        format!("\nnote: its checkpoint was complete {seconds} s after the prompt; what the agent changed meanwhile may be in it")
    });
    let before = format!("{before}{}", late.unwrap_or_default());
    let verb = if restored.dry_run {
        "To go back to"
    } else {
        "Went back to"
    };
    format!("{verb} {before}\n{}", restored_text(restored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_engine::kind::workspace::ChangePlan;

    fn rewound(deletes: u64, dry_run: bool) -> Rewound {
        Rewound {
            prompt: Some(PromptRow {
                prompt: 3,
                checkpoint: "cp-104".to_owned(),
                agent: "codex".to_owned(),
                session: None,
                turn_id: None,
                text: Some("fix it".to_owned()),
                timestamp: String::new(),
                timestamp_ms: 0,
                age: "5 min ago".to_owned(),
                commands: 2,
                late_ms: None,
            }),
            restored: RestoredWorkspace {
                restored: deletes > 0,
                checkpoint: "cp-104".to_owned(),
                undo: Some("u-4".to_owned()),
                changed_meanwhile: Vec::new(),
                undo_forgotten: Vec::new(),
                left_alone: Vec::new(),
                excluded_now: None,
                plan: ChangePlan {
                    creates: 0,
                    replaces: 0,
                    deletes,
                    deletes_files: deletes,
                    sample: Vec::new(),
                    sample_is_cut: false,
                    git: None,
                    digest: String::new(),
                },
                untouched: 7,
                dry_run,
                elapsed_ms: 5,
            },
        }
    }

    #[test]
    fn a_rewind_says_before_which_prompt_the_workspace_is_and_how_to_undo_it() {
        let done = rewound_text(&rewound(2, false), 1);
        let there = rewound_text(&rewound(0, false), 1);

        let first = "Went back to before prompt 3 (codex, 5 min ago): fix it";
        assert_eq!(done.lines().next(), Some(first));
        assert!(done.contains("undo u-4"), "{done}");
        assert!(there.starts_with("Already there"), "{there}");
        assert!(there.contains("--prompts 2"), "{there}");
    }
}
