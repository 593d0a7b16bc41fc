//! The plugin for OpenCode: a file that is all ours.

use super::program::Program;
use super::settings::State;
use anyhow::bail;

const TEMPLATE: &str = include_str!("plugin.js");
/// The line of the template that differs from install to install.
const PROGRAM: &str = "\"@PROGRAM@\"";
const PROGRAM_LINE: &str = "const program = ";

/// The plugin for a program.
pub(super) fn written(program: &Program) -> String {
    TEMPLATE.replace(PROGRAM, &serde_json::json!(program.path()).to_string())
}

/// How things are with the file.
pub(super) fn state(text: &str, program: &Program) -> anyhow::Result<State> {
    let marks = |text: &str| text.lines().next().map(str::to_owned);
    if text == written(program) {
        return Ok(State::Installed);
    }
    if marks(text) != marks(TEMPLATE) {
        bail!("it was not written by us: give it another name, then try again");
    }
    // Of another program, or of an older one of us.
    Ok(State::Outdated)
}

/// The program that a plugin of ours starts.
pub(super) fn program(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(PROGRAM_LINE))?;
    serde_json::from_str(line.trim_end_matches(';')).ok()
}

/// Whether the file is a plugin of ours in which nobody changed anything but, by installing, the program.
pub(super) fn is_untouched(text: &str, program: &Program) -> bool {
    let lines = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with(PROGRAM_LINE));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    text == written(program) || lines(text) == lines(TEMPLATE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::hook::agent::Agent;

    fn program(path: &str) -> Program {
        Program::at(Agent::OpenCode, path)
    }

    #[test]
    fn a_plugin_names_its_program_as_javascript_does() {
        let odd = program("/a \"b\"\\c/stasis");

        let text = written(&odd);

        assert!(text.contains(r#"const program = "/a \"b\"\\c/stasis";"#));
        assert!(!text.contains("@PROGRAM@"));
        assert_eq!(super::program(&text).as_deref(), Some(odd.path()));
        assert_eq!(super::program("export default {}"), None);
    }

    #[test]
    fn a_plugin_of_ours_is_known_again_and_a_foreign_one_is_not_ours() {
        let (here, there) = (program("stasis"), program("/opt/stasis"));

        assert_eq!(state(&written(&here), &here).unwrap(), State::Installed);
        assert_eq!(state(&written(&there), &here).unwrap(), State::Outdated);
        assert!(state("export default {}", &here).is_err());
        assert!(is_untouched(&written(&there), &here));
        assert!(!is_untouched(&written(&here).replace("bash", "zsh"), &here));
    }
}
