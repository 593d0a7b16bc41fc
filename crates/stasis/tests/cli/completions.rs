//! Completions as the shells that are installed here take them.

use crate::session::Session;
use std::path::PathBuf;
use std::process::Command;

/// The script for a shell, in a file.
fn script(session: &Session, shell: &str) -> PathBuf {
    let text = session.data(0, &["completions", shell]);
    assert!(
        !text.contains("profile-snapshots"),
        "what help hides is completed"
    );
    let path = session.home().join(format!("stasis.{shell}"));
    std::fs::write(&path, text).unwrap();
    path
}

fn is_installed(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {shell} is not installed");
    }
    found
}

/// What bash offers for a line whose last word is unfinished.
fn offered(session: &Session, words: &[&str]) -> Vec<String> {
    let script = script(session, "bash");
    let last = words.len() - 1;
    let (current, before) = (words[last], words[last - 1]);
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!(
        "set -eu; source '{}'; COMP_WORDS=({}); COMP_CWORD={last}; COMPREPLY=(); \
         _stasis stasis '{current}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        quoted.join(" ")
    );
    let output = Command::new("bash")
        .args(["--norc", "-c", &line])
        .output()
        .unwrap();
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && err.is_empty(),
        "{words:?}: {err}"
    );
    let out = String::from_utf8(out).unwrap();
    out.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_values() {
    let session = Session::new();

    assert_eq!(offered(&session, &["stasis", "sav"]), ["save"]);
    assert_eq!(
        offered(&session, &["stasis", "restore", "--dry"]),
        ["--dry-run"]
    );
    assert_eq!(
        offered(&session, &["stasis", "workspace", "mat"]),
        ["materialize"]
    );
    assert_eq!(offered(&session, &["stasis", "log", "--js"]), ["--json"]);
    assert_eq!(offered(&session, &["stasis", "completions", "f"]), ["fish"]);
}

#[test]
fn other_shells_can_read_their_scripts() {
    let session = Session::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = script(&session, shell);
        if !is_installed(shell) {
            continue;
        }
        let output = Command::new(shell).arg("-n").arg(&script).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{shell}: {said}"
        );
    }
    if is_installed("fish") {
        let line = format!(
            "source {}; complete -C 'stasis sav'",
            script(&session, "fish").display()
        );
        let output = Command::new("fish")
            .args(["--no-config", "-c", &line])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("save"), "{said}");
    }
}

/// Types at an interactive zsh, by its own terminal, and prints what that shows.
const TYPED: &str = r#"
zmodload zsh/zpty
zpty shell "TERM=dumb zsh -f -i"
zpty -w shell "fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; print -r -- REA''DY"
zpty -r shell shown '*READY*'
zpty -w -n shell $'stasis sav\t'
zpty -r shell shown '*stasis save *' && print -r -- "completed save"
zpty -w -n shell $'\x15stasis workspace mat\t'
zpty -r shell shown '*workspace materialize *' && print -r -- "completed materialize"
zpty -d shell
"#;

#[test]
fn zsh_loads_the_script_and_completes_verbs() {
    let session = Session::new();
    if !is_installed("zsh") {
        return;
    }
    // A function is called like its file.
    let functions = session.home().join("functions");
    std::fs::create_dir(&functions).unwrap();
    std::fs::copy(script(&session, "zsh"), functions.join("_stasis")).unwrap();

    let output = Command::new("timeout")
        .args(["30", "zsh", "-f", "-c", TYPED, "zsh"])
        .arg(&functions)
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("completed save") && said.contains("completed materialize"),
        "{said}{wrong}"
    );
    assert_eq!(wrong, "");
}
