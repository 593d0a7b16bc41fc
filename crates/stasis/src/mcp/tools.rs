//! The tools: what a client is told of each, what it takes, and what it answers.
//!
//! The parameters of a tool are a type that implements [`SnapshotTool`]; both schemas come from types. Descriptions are written for an
//! agent: what it does, when to use it, what undoes it. Hints are only hints: what an agent may not do is refused by the engine.

mod change;
mod fork;
mod look;
mod parameters;

use super::call::Served;
use super::failure::CallFailure;
use super::{misfit, schema};
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

/// Every tool, as it is listed.
static ALL: LazyLock<Vec<RegisteredTool>> = LazyLock::new(|| {
    vec![
        registered::<change::CreateTool>(),
        registered::<look::ListTool>(),
        registered::<look::ChangesTool>(),
        registered::<look::DiffTool>(),
        registered::<change::RevertTool>(),
        registered::<change::RestoreTool>(),
        registered::<look::HistoryTool>(),
        registered::<change::DeleteTool>(),
        registered::<change::CompactTool>(),
        registered::<change::UndoTool>(),
        registered::<fork::ForkTool>(),
        registered::<fork::ForkListTool>(),
        registered::<fork::ForkDiffTool>(),
        registered::<fork::ForkPromoteTool>(),
        registered::<fork::ForkRmTool>(),
    ]
});

pub(super) type CallAnswer = Result<CallToolResult, CallFailure>;
type PendingAnswer<'a> = Pin<Box<dyn Future<Output = CallAnswer> + Send + 'a>>;

struct RegisteredTool {
    tool: Tool,
    call: for<'a> fn(&'a Served, JsonObject) -> PendingAnswer<'a>,
}

/// What a call does to the world.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    /// Nothing.
    Reads,
    /// Something new.
    Adds,
    /// Something is replaced or removed; doing it again does more.
    Replaces,
    /// Something is replaced or removed; doing it again does nothing.
    ReplacesOnce,
}

/// A tool; the type itself is its parameters, and what is not a field of it is refused.
pub(super) trait SnapshotTool: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    const TITLE: &'static str;
    const EFFECT: Effect;
    const DESCRIPTION: &'static str;
    /// Whether its answer comes in pages.
    const IS_PAGED: bool = false;
    /// What the engine answers; some of it is left out of what is sent, see [`super::lean`].
    type Answer: JsonSchema;

    /// Does what a client asks for.
    fn call(self, served: &Served) -> impl Future<Output = CallAnswer> + Send;
}

fn registered<T: SnapshotTool>() -> RegisteredTool {
    RegisteredTool {
        tool: described::<T>(),
        call: |served, arguments| {
            Box::pin(async move {
                let parameters: T = read(arguments)?;
                parameters.call(served).await
            })
        },
    }
}

fn described<T: SnapshotTool>() -> Tool {
    let (reads, replaces, once) = match T::EFFECT {
        Effect::Reads => (true, false, true),
        Effect::Adds => (false, false, false),
        Effect::Replaces => (false, true, false),
        Effect::ReplacesOnce => (false, true, true),
    };
    let hints = ToolAnnotations::with_title(T::TITLE)
        .read_only(reads)
        .destructive(replaces)
        .idempotent(once)
        .open_world(false);
    Tool::new(T::NAME, T::DESCRIPTION, schema::parameters::<T>())
        .with_title(T::TITLE)
        .with_annotations(hints)
        .with_raw_output_schema(Arc::new(schema::answer::<T::Answer>(T::IS_PAGED)))
}

/// Reads parameters; what is wrong with them is said by name.
fn read<T: SnapshotTool>(arguments: JsonObject) -> Result<T, CallFailure> {
    let wrong = find(T::NAME).and_then(|tool| misfit::wrong_parameter(tool, &arguments));
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        CallFailure::Params(wrong.unwrap_or_else(|| format!("{}: {error}", T::NAME)))
    })
}

/// Every tool, as clients list them.
pub(super) fn list() -> Vec<Tool> {
    ALL.iter().map(|one| one.tool.clone()).collect()
}

/// What is known of a tool.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    let mut all = ALL.iter();
    Some(&all.find(|one| one.tool.name == name)?.tool)
}

/// Calls a tool.
pub(super) async fn call(served: &Served, name: &str, arguments: JsonObject) -> CallAnswer {
    let Some(one) = ALL.iter().find(|one| one.tool.name == name) else {
        return Err(CallFailure::Params(format!(
            "there is no tool `{name}`; tools/list shows those there are"
        )));
    };
    (one.call)(served, arguments).await
}

#[cfg(test)]
mod tests;
