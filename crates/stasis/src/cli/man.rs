//! `stasis man`: a page for each command, from what its help is made of

use super::help;
use super::output::{plural, printable};
use super::{CliContext, help::Example};
use crate::report::Exit;
use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// `stasis man`
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// The command, as it is typed: `save`, `fork rm` [default: the program itself]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,
    /// Write all pages to this directory, made if it is not there; pages of the same names are replaced
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// One page.
#[derive(Serialize, JsonSchema)]
pub(super) struct ManPage {
    page: String,
    text: String,
}

/// The pages that were written.
#[derive(Serialize, JsonSchema)]
pub(super) struct ManPages {
    dir: String,
    pages: Vec<String>,
}

impl ManArgs {
    pub(super) fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match &self.dir {
            Some(dir) => write_all(context, dir),
            None => self.print(context),
        }
    }

    /// Prints the page of one command.
    fn print(&self, context: &CliContext) -> anyhow::Result<Exit> {
        let page = if self.command.is_empty() {
            page(&whole_program(), "")?
        } else {
            let mut program = help::visible().disable_help_subcommand(true);
            program.build();
            let mut found = &program;
            for word in &self.command {
                let typed = self.command.join(" ");
                found = found.find_subcommand(word).with_context(|| {
                    format!("there is no command `{typed}`; `stasis help` lists them, `stasis man --dir DIR` writes all pages")
                })?;
            }
            page(found, &self.command.join(" "))?
        };
        context
            .output
            .result(&page, |page| page.text.trim_end().to_owned())?;
        Ok(Exit::Done)
    }
}

/// Only the page of the program itself has the options that every command takes.
fn whole_program() -> Command {
    help::visible().mut_args(|arg| arg.hide(false))
}

/// Writes all pages.
fn write_all(context: &CliContext, dir: &Path) -> anyhow::Result<Exit> {
    let failed = || format!("could not write man pages to `{}`", dir.display());
    std::fs::create_dir_all(dir).with_context(failed)?;
    let mut pages = Vec::new();
    pages.push(write(dir, &whole_program(), "").with_context(failed)?);
    let mut program = help::visible().disable_help_subcommand(true);
    program.build();
    write_below(dir, &program, "", &mut pages).with_context(failed)?;
    let written = ManPages {
        dir: dir.display().to_string(),
        pages,
    };
    context.output.result(&written, |written| {
        let count = plural(written.pages.len() as u64, "man page");
        let dir = printable(&written.dir);
        format!("wrote {count} to {dir}; read one with: man -l {dir}/stasis.1")
    })?;
    Ok(Exit::Done)
}

fn write_below(
    dir: &Path,
    command: &Command,
    above: &str,
    pages: &mut Vec<String>,
) -> std::io::Result<()> {
    for inner in command.get_subcommands() {
        let path = help::joined(above, inner.get_name());
        pages.push(write(dir, inner, &path)?);
        write_below(dir, inner, &path, pages)?;
    }
    Ok(())
}

/// Writes the page of one command; returns its name.
#[expect(
    clippy::disallowed_methods,
    reason = "a page that is lost is made anew by the same command"
)]
fn write(dir: &Path, command: &Command, path: &str) -> std::io::Result<String> {
    let page = page(command, path)?;
    std::fs::write(dir.join(&page.page), page.text)?;
    Ok(page.page)
}

fn page(command: &Command, path: &str) -> std::io::Result<ManPage> {
    let man = Man::new(command.clone().disable_help_subcommand(true))
        .source(format!("stasis {}", env!("CARGO_PKG_VERSION")))
        .manual("Stasis");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    if !path.is_empty() {
        examples(help::examples_of(path)).to_writer(&mut page)?;
    }
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if !path.is_empty() {
        see_also().to_writer(&mut page)?;
    }
    let text = String::from_utf8(page).map_err(std::io::Error::other)?;
    Ok(ManPage {
        page: man.get_filename(),
        text,
    })
}

fn examples(examples: &[Example]) -> Roff {
    let mut section = Roff::default();
    section.control("SH", ["EXAMPLES"]);
    for (command, what) in examples {
        section.control("TP", []);
        section.text([bold(*command)]);
        section.text([roman(*what)]);
    }
    section
}

fn see_also() -> Roff {
    let mut section = Roff::default();
    section.control("SH", ["SEE ALSO"]);
    let text = " has the options that every command takes.";
    section.text([bold("stasis"), roman("(1)"), roman(text)]);
    section
}
