//! What the program says of itself: the first screen, examples, and the options of every command once.
//!
//! The commands come from clap; this adds what clap does not know.

mod examples;
mod first_screen;

pub(super) use examples::{Example, of as examples_of};

use super::Cli;
use clap::builder::styling::Style;
use clap::builder::{StyledStr, Styles};
use clap::{Arg, ArgAction, Command, CommandFactory};

/// How wide a screen may be.
const WIDTH: usize = 80;
/// The command that has the options of every command.
pub(super) const OPTIONS: &str = "options";

/// The command line, with its help.
pub(super) fn program() -> Command {
    let program = with_help_flag(Cli::command());
    let global: Vec<Arg> = program.get_arguments().cloned().collect();
    let program = program
        // What every command takes is shown by `stasis help options`, and nowhere else.
        .mut_args(|arg| {
            let is_global = arg.is_global_set();
            arg.hide(is_global)
        })
        .override_usage("stasis [OPTIONS] COMMAND")
        .override_help(first_screen::text())
        .mut_subcommand(OPTIONS, |options| options.args(global));
    described(program, "")
}

/// The same without commands that help does not show, for completions and man pages.
pub(super) fn visible() -> Command {
    let program = program();
    let shown = program.get_subcommands().filter(|one| !one.is_hide_set());
    Command::new("stasis")
        .about(program.get_about().cloned().unwrap_or_default())
        .disable_help_flag(true)
        .args(program.get_arguments())
        .subcommands(shown)
        .subcommand_required(true)
}

/// The same `--help` for every command, so that it can be left out of each list of options.
fn with_help_flag(program: Command) -> Command {
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .global(true)
        .help("Print help; -h prints less of it");
    program.disable_help_flag(true).arg(help)
}

/// Adds examples, other names and a word on global options to every command below one.
fn described(command: Command, path: &str) -> Command {
    command.mut_subcommands(|inner| {
        let path = joined(path, inner.get_name());
        let inner = described(inner, &path);
        let has_list =
            inner.get_arguments().any(|arg| !arg.is_hide_set()) || inner.has_subcommands();
        let list = if has_list { "\n\n{all-args}" } else { "" };
        let template = format!(
            "{{about-with-newline}}\n{{before-help}}{{usage-heading}} {{usage}}{list}{{after-help}}"
        );
        let footer = footer(&inner, &path);
        let inner = inner.help_template(template).after_help(footer);
        match examples::of(&path) {
            [] => inner,
            all => inner.before_help(examples_text(all)),
        }
    })
}

pub(super) fn joined(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path} {name}"),
    }
}

fn footer(command: &Command, path: &str) -> String {
    if command.get_name() == OPTIONS {
        return "`stasis --version` prints what this build is.".to_owned();
    }
    let mut others: Vec<&str> = command.get_visible_aliases().collect();
    if path == "log" {
        // A command of its own, because a contract has more below it.
        others.push("snapshots");
    }
    let others = match &*others {
        [] => String::new(),
        others => format!("Also called: {}\n", others.join(", ")),
    };
    format!("{others}Options of every command, such as --store and --json: stasis help {OPTIONS}")
}

fn heading() -> Style {
    *Styles::default().get_header()
}

fn literal() -> Style {
    *Styles::default().get_literal()
}

fn examples_text(examples: &[Example]) -> StyledStr {
    let (heading, literal) = (heading(), literal());
    let widest = |width: fn(&Example) -> usize| examples.iter().map(width).max().unwrap_or(0);
    let (command, what) = (widest(|one| one.0.len()), widest(|one| one.1.len()));
    let is_beside = command + what + 4 <= WIDTH;
    let line = |(one, what): &Example| {
        let between = if is_beside {
            " ".repeat(command - one.len() + 2)
        } else {
            "\n      ".to_owned()
        };
        format!("\n  {literal}{one}{literal:#}{between}{what}")
    };
    let lines: String = examples.iter().map(line).collect();
    format!("{heading}Examples:{heading:#}{lines}").into()
}

/// Prints the options that every command takes.
pub(super) fn print_options() -> std::io::Result<()> {
    let mut program = program();
    program.build();
    let options = program.find_subcommand_mut(OPTIONS);
    options.expect("it is a command of ours").print_long_help()
}

#[cfg(test)]
mod tests;
