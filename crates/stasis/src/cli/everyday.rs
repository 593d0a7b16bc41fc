//! The everyday verbs, for every subject: `stasis save`, `restore`, `undo`, `log`, `show`, `diff`, `ls`, `cat`, `find`, `du`, `check`,
//! `pin`, `forget`, `gc`
//!
//! A directory is worked on here; what the same verbs do to a profile is in [`super::profile::everyday`].

mod back;
mod look;
mod ui;
mod upkeep;
mod words;

pub(super) use back::{RestoreArgs, SaveArgs, UndoArgs};
pub(super) use look::{CatArgs, DiffArgs, DuArgs, FindArgs, LogArgs, LsArgs, ShowArgs};
pub(super) use ui::{PageOpened, UiArgs};
pub(super) use upkeep::{CheckArgs, CheckedDirectory, ForgetArgs, ForgetResult, GcArgs, PinArgs};
