use super::first_screen::GROUPS;
use super::*;

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let inner = command.get_subcommands();
    inner.filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

/// The paths of all commands that help shows.
fn paths(command: &Command, above: &str, all: &mut Vec<String>) {
    for inner in visible(command) {
        let path = joined(above, inner.get_name());
        paths(inner, &path, all);
        all.push(path);
    }
}

/// A command as a shell takes it apart: quotes, and the variable that examples have.
fn words(line: &str) -> Vec<String> {
    let line = line.split(" > ").next().unwrap();
    let token = "1.0195b3e0-7c1a-4c55-9d5f-0d5a3c1e8b42";
    let line = line.replace("$TOKEN", token).replace("$token", token);
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in line.chars() {
        let last = words.len() - 1;
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, ' ') => words.push(String::new()),
            _ => words[last].push(letter),
        }
    }
    words
}

#[test]
fn clap_finds_nothing_wrong_with_the_command_line() {
    program().debug_assert();
}

#[test]
fn every_command_is_in_one_group_of_the_first_screen() {
    let program = Cli::command();
    let rows = GROUPS.iter().flat_map(|group| group.rows);
    let listed: Vec<&str> = rows.flat_map(|row| row.commands).copied().collect();

    for command in visible(&program) {
        let name = command.get_name();
        let times = listed.iter().filter(|one| **one == name).count();
        assert_eq!(times, 1, "`{name}` in cli/help/first_screen.rs");
    }
    for name in listed {
        let is_there = program.find_subcommand(name).is_some();
        assert!(is_there, "no command is `{name}`");
    }
}

#[test]
fn the_first_screen_fits_forty_lines_of_eighty_columns() {
    let screen = first_screen::text().to_string();

    assert!(screen.lines().count() <= 40, "{screen}");
    let wide = screen.lines().find(|line| line.chars().count() > WIDTH);
    assert_eq!(wide, None);
    // With the commands that other builds have it must fit too.
    let rows = GROUPS.iter().flat_map(|group| group.rows);
    let program = Cli::command();
    let missing = rows.filter(|row| {
        row.commands
            .iter()
            .any(|name| program.find_subcommand(name).is_none())
    });
    assert!(screen.lines().count() + missing.count() <= 40, "{screen}");
}

#[test]
fn every_command_has_examples_and_every_example_a_command() {
    let mut all = Vec::new();
    paths(&Cli::command(), "", &mut all);

    for path in &all {
        assert!(
            !examples::of(path).is_empty(),
            "`stasis {path}` has no example"
        );
    }
    for (path, _) in examples::EXAMPLES {
        assert!(
            all.iter().any(|one| one == path),
            "no command is `stasis {path}`"
        );
    }
}

#[test]
fn every_example_can_be_typed_and_fits_the_screen() {
    let mut wrong = Vec::new();
    for (path, examples) in examples::EXAMPLES {
        for (command, what) in *examples {
            let words = words(command);
            if let Err(error) = program().try_get_matches_from(&words) {
                wrong.push(format!("`{command}`: {error}"));
            }
            let mut named = path.split(' ');
            if !named.all(|name| words.iter().any(|word| word == name)) {
                wrong.push(format!("`{command}` is no example of `{path}`"));
            }
            if what.is_empty() || what.ends_with('.') {
                wrong.push(format!("`{command}`: {what}"));
            }
        }
        let text = examples_text(examples).to_string();
        let wide = text.lines().filter(|line| line.chars().count() > WIDTH);
        wrong.extend(wide.map(|line| format!("too wide: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_help_opens_with_examples_and_shows_no_global_option() {
    let mut program = program().term_width(WIDTH);
    program.build();
    let mut all = Vec::new();
    paths(&program, "", &mut all);

    for path in all {
        let mut command = &mut program;
        for name in path.split(' ') {
            command = command.find_subcommand_mut(name).unwrap();
        }
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            let at = |text: &str| {
                help.find(text)
                    .unwrap_or_else(|| panic!("{path}: no {text} in\n{help}"))
            };
            assert!(at("Examples:") < at("Usage:"), "{help}");
            assert!(!help.contains("\n      --config"), "{help}");
            assert_eq!(help.matches("stasis help options").count(), 1, "{help}");
            assert!(!help.contains("\n\n\n"), "{help}");
        }
    }
}

#[test]
fn the_options_of_every_command_are_in_one_place() {
    let mut program = program().term_width(WIDTH);
    program.build();

    let options = program.find_subcommand_mut(OPTIONS).unwrap();
    let help = options.render_long_help().to_string();

    for arg in Cli::command().get_arguments() {
        let long = arg.get_long().unwrap();
        assert!(help.contains(&format!("--{long}")), "{help}");
    }
}

/// The commands of ours in a line that a guide shows.
fn commands_in(line: &str) -> Vec<&str> {
    let line = line.split(" # ").next().unwrap_or(line);
    let parts = line
        .split("&&")
        .flat_map(|part| part.split(['|', ';', '(', ')', '`']));
    let parts = parts.filter_map(|part| {
        let part = part.trim();
        let part = part.strip_prefix("timeout 20 ").unwrap_or(part);
        part.starts_with("stasis ").then_some(part)
    });
    let before_redirection =
        |part: &'_ str| part.find(" 2>").into_iter().chain(part.find(" > ")).min();
    parts
        .map(|part| part[..before_redirection(part).unwrap_or(part.len())].trim_end_matches(" &"))
        .collect()
}

#[test]
fn what_the_documentation_types_is_understood() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guides = std::fs::read_dir(root.join("docs/guides")).unwrap();
    let guides = guides.map(|guide| guide.unwrap().path());
    let more = ["README.md", "deploy/README.md"].map(|name| root.join(name));
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in guides.chain(more) {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines().filter_map(|line| line.strip_prefix("$ ")) {
            for command in commands_in(line) {
                let mut words = words(command);
                // Flags that a machine needs are none, here.
                words.retain(|word| !word.is_empty() && !word.ends_with("_FLAGS"));
                for word in words.iter_mut().filter(|word| *word == "$agent") {
                    // The number of a process.
                    *word = "4711".into();
                }
                seen += 1;
                let parsed = program().try_get_matches_from(&words);
                // Help and versions are shown, which is no mistake.
                if let Err(error) = parsed.map_err(|error| error.use_stderr().then_some(error))
                    && let Some(error) = error
                {
                    wrong.push(format!("{}: {command}\n{error}", path.display()));
                }
            }
        }
    }
    assert!(seen > 100, "{seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_units_and_manifests_start_is_understood() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let mut started: Vec<Vec<String>> = Vec::new();
    for name in [
        "systemd/stasis.service",
        "systemd/stasis.service.d/tls.conf",
    ] {
        let text = read(name);
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart=stasis "));
        started.extend(lines.map(|line| line.split(' ').map(str::to_owned).collect()));
    }
    let manifest = read("kubernetes/stasis.yaml");
    let arguments = manifest
        .lines()
        .skip_while(|line| line.trim() != "args:")
        .skip(1);
    let arguments = arguments.map(str::trim).take_while(|line| *line != "env:");
    let arguments = arguments.filter_map(|line| line.strip_prefix("- "));
    started.push(arguments.map(str::to_owned).collect());
    let image = read("docker/Dockerfile");
    assert!(image.ends_with("CMD [\"serve\"]\n"), "{image}");

    assert_eq!(started.len(), 3, "{started:?}");
    for words in started {
        assert!(words.len() > 3, "{words:?}");
        let parsed = program().try_get_matches_from(["stasis".to_owned()].into_iter().chain(words));
        parsed.unwrap();
    }
}
