//! `stasis profile shim`

use super::load::browser_setting;
use super::run::ProfileRunArgs;
use crate::cli::CliContext;
use crate::cli::output::printable;
use crate::report::Exit;
use anyhow::Context as _;
use clap::{Args, Command};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_engine::address::shell_word;
use stasis_engine::error::Error;
use stasis_engine::kind::profile::installed_browser;
use stasis_engine::model::id::ProfileRef;
use stasis_engine::model::subject_ref::PROFILE_PREFIX;
use stasis_engine::write_new;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The options of `profile run` whose values are paths.
const PATHS: [&str; 2] = ["--dir", BROWSER];
const BROWSER: &str = "--browser";

#[derive(Debug, Args)]
pub(crate) struct ProfileShimArgs {
    /// <tenant>/<profile>[@<chrome-major>]; without the major the browser is asked
    subject: ProfileRef,
    /// The program to write; it must not be there [default: <profile>-browser]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The browser that it starts [default: $STASIS_BROWSER, then `profile.browser` in the configuration file, then the one
    /// that is installed]
    #[arg(long, value_name = "PATH")]
    browser: Option<PathBuf>,
    /// Options of `profile run`, such as: --no-save, --wait=10m
    #[arg(last = true, value_name = "RUN_OPTIONS")]
    options: Vec<String>,
}

/// A program that was written.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct WrittenShim {
    subject: String,
    path: PathBuf,
    browser: PathBuf,
    #[serde(skip)]
    saves: bool,
}

impl ProfileShimArgs {
    pub(super) fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let saves = self.check_options()?;
        let named = browser_setting(context, self.browser.clone())?;
        let search_path = &context.environment.search_path;
        let browser = installed_browser(named.as_deref(), search_path)?;
        let usual = || format!("{}-browser", self.subject.profile).into();
        let path = std::path::absolute(self.out.clone().unwrap_or_else(usual))?;
        write(&path, &self.script(context, &browser, saves)?)?;
        let written = WrittenShim {
            subject: format!("{PROFILE_PREFIX}{}", self.subject),
            path,
            browser,
            saves,
        };
        context.output.result(&written, text)?;
        Ok(Exit::Done)
    }

    /// What `profile run` would not understand is said now, and not when a framework starts the browser. Returns whether
    /// such a run saves.
    fn check_options(&self) -> anyhow::Result<bool> {
        let options = self.options.iter().map(String::as_str);
        let words = ["profile run", "acme/alice"].into_iter().chain(options);
        let words = words.chain(["--", "chromium"]);
        let run = ProfileRunArgs::augment_args(Command::new("profile run"));
        match run.try_get_matches_from(words) {
            Ok(matches) => Ok(!matches.get_flag("no_save")),
            Err(error) => {
                let said = error.to_string();
                let first = said.lines().next().unwrap_or_default();
                let first = first.strip_prefix("error: ").unwrap_or(first);
                anyhow::bail!(
                    "`profile run` does not take {:?}: {first}",
                    self.options.join(" ")
                )
            }
        }
    }

    fn script(&self, context: &CliContext, browser: &Path, saves: bool) -> anyhow::Result<String> {
        let stasis = std::env::current_exe().context("could not find out which program this is")?;
        let mut words: Vec<OsString> = vec![stasis.into(), "--store".into()];
        words.push(context.location()?.to_string().into());
        words.extend(context.keys.words()?);
        words.extend(["profile", "run", "--shim"].map(OsString::from));
        words.push(self.subject.to_string().into());
        words.extend(with_whole_paths(&self.options)?);
        words.extend([OsString::from("--"), browser.into()]);
        let words: Vec<String> = words
            .iter()
            .map(|word| quoted(word))
            .collect::<Result<_, _>>()?;
        Ok(format!(
            "#!/bin/sh\n# Written by `stasis profile shim`: a browser on the profile {subject}.\n\
             # It is started as the browser would be, loads the profile, and {ending}.\n\
             for word do\n  \
               case $word in --version | --product-version) exec {browser} \"$@\" ;; esac\n\
             done\n\
             exec {command} \"$@\"\n",
            subject = self.subject,
            ending = ending(saves),
            browser = quoted(browser.as_os_str())?,
            command = words.join(" "),
        ))
    }
}

/// Writes the program; what else is there stays.
fn write(path: &Path, script: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        path.symlink_metadata().is_err(),
        "`{}` is there already; remove it, or give another --out",
        path.display()
    );
    // A command that prints the key may stand in it.
    Ok(write_new(path, script.as_bytes(), 0o700).map_err(Error::from)?)
}

/// Options with whole paths: a framework starts the program wherever it likes.
fn with_whole_paths(options: &[String]) -> anyhow::Result<Vec<OsString>> {
    let (mut words, mut before) = (Vec::new(), "");
    for option in options {
        let is_value = PATHS.contains(&before);
        let (flag, begin, path) = match option.split_once('=') {
            _ if is_value => (before, "", option.as_str()),
            Some((flag, path)) if PATHS.contains(&flag) => (flag, &option[..=flag.len()], path),
            _ => ("", option.as_str(), ""),
        };
        let mut word = OsString::from(begin);
        // A program without a slash is looked for among those that are installed.
        if path.is_empty() || (flag == BROWSER && !path.contains('/')) {
            word.push(path);
        } else {
            word.push(std::path::absolute(path)?);
        }
        words.push(word);
        before = if is_value { "" } else { option };
    }
    Ok(words)
}

fn quoted(word: &std::ffi::OsStr) -> anyhow::Result<String> {
    let text = word.to_str();
    let text = text.with_context(|| format!("`{}` is no text", word.display()))?;
    Ok(shell_word(text).into_owned())
}

/// What becomes of the profile.
fn ending(saves: bool) -> &'static str {
    if saves {
        "saves it when the browser has ended"
    } else {
        "saves nothing: each browser has a private copy, which is thrown away"
    }
}

fn text(written: &WrittenShim) -> String {
    format!(
        "{path} starts {} on {} and {}\n  \
         give it to the framework as executablePath: {path}",
        printable(&written.browser.display().to_string()),
        written.subject,
        ending(written.saves),
        path = printable(&written.path.display().to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_among_the_options_are_whole_however_they_are_written() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        let given = "--dir p --notes --dir=p/q --browser ./b --browser=chromium --dir /p";
        let given: Vec<String> = given.split(' ').map(str::to_owned).collect();

        let words = with_whole_paths(&given).unwrap();

        let wanted = format!(
            "--dir {here}/p --notes --dir={here}/p/q --browser {here}/b --browser=chromium --dir /p"
        );
        assert_eq!(words, wanted.split(' ').collect::<Vec<_>>());
    }
}
