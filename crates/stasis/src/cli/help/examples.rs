//! Examples for every command: what `--help` and the man pages show first. Tests parse all of them, and run most.

/// A command as it is typed, and what it does.
pub(in crate::cli) type Example = (&'static str, &'static str);

/// The examples of a command, by its path without the program.
pub(in crate::cli) fn of(path: &str) -> &'static [Example] {
    let found = EXAMPLES.iter().find(|(command, _)| *command == path);
    found.map_or(&[], |(_, examples)| examples)
}

pub(super) const EXAMPLES: &[(&str, &[Example])] = &[
    // Everyday
    (
        "save",
        &[
            ("stasis save", "the directory you are in"),
            (
                "stasis save ~/notes -m 'before the rewrite'",
                "another one, with a message",
            ),
            ("stasis save --store ~/usb/store", "into another store"),
            (
                "stasis save --exclude node_modules",
                "without what can be made again",
            ),
        ],
    ),
    (
        "undo",
        &[
            ("stasis undo", "the last restore, rewind, revert or undo"),
            ("stasis undo --dry-run", "what that would change"),
            (
                "stasis undo --except src/main.rs",
                "but for one file, named from where you stand",
            ),
            (
                "stasis undo u-4",
                "an earlier one, as `stasis log` lists it",
            ),
        ],
    ),
    (
        "protect",
        &[
            ("stasis protect", "this directory, while agents work in it"),
            (
                "stasis protect --dry-run",
                "what would be changed in settings",
            ),
            ("stasis protect --off", "end it; checkpoints stay"),
        ],
    ),
    (
        "fork",
        &[
            ("stasis fork --count 3", "three copies to try things in"),
            (
                "stasis fork --from cp-0 --name try",
                "from a checkpoint, with a name",
            ),
            ("stasis fork list", "what forks there are"),
        ],
    ),
    (
        "fork list",
        &[("stasis fork list", "forks of this workspace")],
    ),
    (
        "fork diff",
        &[
            (
                "stasis fork diff fork-1",
                "what it changed since it was made",
            ),
            (
                "stasis fork diff fork-1 fork-2 --stat",
                "how two of them differ",
            ),
        ],
    ),
    (
        "fork promote",
        &[
            (
                "stasis fork promote fork-2 --dry-run",
                "what would change here",
            ),
            (
                "stasis fork promote fork-2",
                "its tree becomes this workspace; `stasis undo` takes that back",
            ),
        ],
    ),
    (
        "fork rm",
        &[
            ("stasis fork rm fork-1", "one that is not needed any more"),
            ("stasis fork rm fork-2 fork-3", "several, or none of them"),
        ],
    ),
    (
        "mount",
        &[
            (
                "stasis mount ~/snapshots",
                "all snapshots of this directory, to look around in",
            ),
            ("stasis mount --all ~/everything", "everything in the store"),
        ],
    ),
    (
        "restore",
        &[
            ("stasis restore --dry-run", "what would change"),
            ("stasis restore", "this directory, to its latest snapshot"),
            (
                "stasis restore latest~1 --path src",
                "only src, as it was one save earlier",
            ),
            ("stasis restore @-2h", "as it was two hours ago"),
            (
                "stasis restore ~/notes --to ~/copy",
                "to a new directory, as a copy",
            ),
        ],
    ),
    (
        "log",
        &[
            ("stasis log", "of the directory you are in"),
            ("stasis log ~/notes", "of another one"),
            (
                "stasis log dir:notes --json",
                "by its name in the store, for a script",
            ),
        ],
    ),
    (
        "show",
        &[
            ("stasis show", "the latest snapshot"),
            ("stasis show a27be8bc", "by its id, as log prints it"),
            (
                "stasis show ~/notes latest~1",
                "of another directory, the one before",
            ),
        ],
    ),
    (
        "diff",
        &[
            (
                "stasis diff",
                "what changed since the newest snapshot or checkpoint",
            ),
            (
                "stasis diff --patch > p",
                "the same, as `git apply` takes it",
            ),
            ("stasis diff latest~1 latest", "between two snapshots"),
            (
                "stasis diff ~/notes @-2h",
                "of another directory, in two hours",
            ),
        ],
    ),
    (
        "ls",
        &[
            ("stasis ls", "the top of the latest snapshot"),
            (
                "stasis ls latest~1 --path src -r",
                "src and all in it, one save earlier",
            ),
            ("stasis ls ~/notes a27be8bc", "of another directory"),
        ],
    ),
    (
        "cat",
        &[
            ("stasis cat plan.txt", "as it is in the latest snapshot"),
            (
                "stasis cat latest~1 src/main.rs",
                "as it was one save earlier",
            ),
            (
                "stasis cat ~/notes a27be8bc plan.txt",
                "of another directory",
            ),
        ],
    ),
    (
        "find",
        &[
            ("stasis find plan.txt", "every version of a file"),
            (
                "stasis find '*.rs' ~/notes",
                "a pattern, in another directory's snapshots",
            ),
        ],
    ),
    (
        "du",
        &[
            ("stasis du", "of the directory you are in"),
            ("stasis du ~/notes --json", "of another one, for a script"),
        ],
    ),
    (
        "pin",
        &[
            ("stasis pin", "keep the latest snapshot"),
            ("stasis pin a27be8bc", "keep one by its id"),
            ("stasis pin a27be8bc --off", "let the policy decide again"),
        ],
    ),
    (
        "forget",
        &[
            ("stasis forget a27be8bc", "one snapshot, by its id"),
            ("stasis forget ~/notes latest~3", "of another directory"),
        ],
    ),
    (
        "gc",
        &[
            ("stasis gc --dry-run", "what would be deleted, and why"),
            (
                "stasis gc --keep 20",
                "keep the newest 20, and what is pinned",
            ),
            ("stasis gc session:acme/42", "a session, from anywhere"),
        ],
    ),
    (
        "list",
        &[
            ("stasis list", "everything in the store"),
            ("stasis list --store ~/usb/store", "in another one"),
            ("stasis list --json", "for a script"),
        ],
    ),
    (
        "check",
        &[
            ("stasis check", "the directory you are in"),
            (
                "stasis check ~/notes --read-data",
                "another one, down to every byte",
            ),
            ("stasis check --all", "the whole store"),
        ],
    ),
    // Kinds: browser profiles
    (
        "profile",
        &[
            (
                "stasis profile run acme/alice -- chromium --user-data-dir={dir}",
                "browse; saved when the browser is closed",
            ),
            ("stasis profile list acme/alice", "its snapshots"),
            (
                "stasis profile rollback acme/alice --sha 1a2b3c4d --confirm",
                "go back to an older one",
            ),
        ],
    ),
    (
        "profile run",
        &[
            (
                "stasis profile run acme/alice -- chromium --user-data-dir={dir}",
                "saved when the browser is closed",
            ),
            (
                "stasis profile run acme/alice --every 10m -- chromium --user-data-dir={dir}",
                "and every ten minutes while it runs",
            ),
            (
                "stasis profile run acme/alice --no-save -- chromium --user-data-dir={dir}",
                "on a private copy, beside other runs",
            ),
        ],
    ),
    (
        "profile save",
        &[
            (
                "stasis profile save acme/alice --dir ~/.config/chromium",
                "what a browser left there",
            ),
            (
                "stasis profile save acme/alice --dir ~/p --include-caches",
                "with its caches",
            ),
        ],
    ),
    (
        "profile load",
        &[
            (
                "stasis profile load acme/alice --dir ~/alice",
                "the active snapshot, to a new directory",
            ),
            (
                "stasis profile load acme/alice --dir ~/alice --chrome-major 131",
                "for that browser version",
            ),
            (
                "stasis profile load acme/alice --dir ~/old --sha latest~1",
                "the snapshot before",
            ),
        ],
    ),
    (
        "profile shim",
        &[
            (
                "stasis profile shim acme/alice --out ./alice-browser",
                "give it to Puppeteer as executablePath",
            ),
            (
                "stasis profile shim acme/alice --out ./alice-reads -- --no-save",
                "many at once, nothing is saved",
            ),
        ],
    ),
    (
        "profile logins",
        &[
            (
                "stasis profile logins acme/alice",
                "where it seems to be signed in",
            ),
            (
                "stasis profile logins acme/alice --all --sha latest~1",
                "all sites, in the snapshot before",
            ),
        ],
    ),
    (
        "profile storage-state",
        &[(
            "stasis profile storage-state export acme/alice state.json",
            "cookies and Local Storage, for Playwright",
        )],
    ),
    (
        "profile storage-state export",
        &[(
            "stasis profile storage-state export acme/alice state.json",
            "of the active snapshot",
        )],
    ),
    (
        "profile storage-state import",
        &[(
            "stasis profile storage-state import acme/alice state.json",
            "set by a browser, and saved",
        )],
    ),
    (
        "profile verify",
        &[
            ("stasis profile verify acme/alice", "the active snapshot"),
            (
                "stasis profile verify acme/alice --sha 1a2b3c4d",
                "another one",
            ),
        ],
    ),
    (
        "profile list",
        &[
            ("stasis profile list", "every profile"),
            ("stasis profile list acme/alice", "the snapshots of one"),
        ],
    ),
    (
        "profile show",
        &[
            (
                "stasis profile show acme/alice",
                "its active snapshot, its lock",
            ),
            (
                "stasis profile show acme/alice --sha 1a2b3c4d",
                "another snapshot",
            ),
        ],
    ),
    (
        "profile rollback",
        &[
            (
                "stasis profile rollback acme/alice --sha 1a2b3c4d",
                "what would be done",
            ),
            (
                "stasis profile rollback acme/alice --sha 1a2b3c4d --confirm",
                "do it",
            ),
        ],
    ),
    (
        "profile pin",
        &[(
            "stasis profile pin acme/alice --sha 1a2b3c4d",
            "keep it for good",
        )],
    ),
    (
        "profile unpin",
        &[(
            "stasis profile unpin acme/alice --sha 1a2b3c4d",
            "let the policy decide again",
        )],
    ),
    (
        "profile delete",
        &[(
            "stasis profile delete acme/alice --sha 1a2b3c4d --confirm",
            "gone with the next gc",
        )],
    ),
    (
        "profile gc",
        &[
            ("stasis profile gc", "every profile of the store"),
            (
                "stasis profile gc acme/alice --keep-newest 3",
                "one, by another rule",
            ),
        ],
    ),
    (
        "profile fork",
        &[(
            "stasis profile fork acme/alice acme/alice-test",
            "a second identity, from the active snapshot",
        )],
    ),
    (
        "profile diff",
        &[(
            "stasis profile diff acme/alice 1a2b3c4d 5e6f7a8b",
            "files, cookies and sites",
        )],
    ),
    (
        "profile discard",
        &[(
            "stasis profile discard ~/alice",
            "drop what a run left unsaved there",
        )],
    ),
    (
        "profile rekey",
        &[(
            "stasis profile rekey acme/alice --key-file old.key --new-key-file new.key",
            "one profile, to a new tenant key",
        )],
    ),
    (
        "profile force-unlock",
        &[(
            "stasis profile force-unlock acme/alice --reason 'host is gone' --confirm",
            "take it from its holder",
        )],
    ),
    (
        "profile reap",
        &[
            ("stasis profile reap", "all whose holders are presumed dead"),
            ("stasis profile reap acme/alice", "one"),
        ],
    ),
    // Kinds: applications
    (
        "project",
        &[
            (
                "stasis project init",
                "look for databases, and write stasis.toml",
            ),
            ("stasis project save", "files and databases, consistent"),
            (
                "stasis project upgrade ./upgrade.sh",
                "and back again if it fails",
            ),
        ],
    ),
    (
        "project init",
        &[
            ("stasis project init --dry-run", "what would be written"),
            (
                "stasis project init --id shop",
                "with a name of your choice",
            ),
        ],
    ),
    (
        "project save",
        &[
            ("stasis project save", "the project you are in"),
            (
                "stasis project save ~/shop -m 'before 2.0'",
                "another one, with a message",
            ),
        ],
    ),
    (
        "project restore",
        &[
            (
                "stasis project restore latest --dry-run",
                "what would change",
            ),
            ("stasis project restore latest", "files and databases"),
        ],
    ),
    (
        "project start",
        &[("stasis project start", "every program of stasis.toml")],
    ),
    (
        "project stop",
        &[("stasis project stop", "every program of stasis.toml")],
    ),
    (
        "project status",
        &[(
            "stasis project status --project ~/shop",
            "of another directory",
        )],
    ),
    (
        "project list",
        &[("stasis project list", "of the project you are in")],
    ),
    (
        "project show",
        &[("stasis project show latest", "with the databases in it")],
    ),
    (
        "project diff",
        &[
            (
                "stasis project diff latest",
                "since the latest snapshot, rows of tables too",
            ),
            ("stasis project diff latest~1 latest", "between two"),
        ],
    ),
    (
        "project label",
        &[
            ("stasis project label latest release=2.0", "set it"),
            ("stasis project label latest release=", "remove it"),
        ],
    ),
    (
        "project pin",
        &[
            ("stasis project pin latest", "keep it for good"),
            (
                "stasis project pin latest --off",
                "let the policy decide again",
            ),
        ],
    ),
    (
        "project delete",
        &[("stasis project delete latest~1", "gone with the next gc")],
    ),
    (
        "project verify",
        &[
            (
                "stasis project verify",
                "the latest snapshot, its databases too",
            ),
            ("stasis project verify a27be8bc", "another one"),
        ],
    ),
    (
        "project gc",
        &[(
            "stasis project gc --keep 20 --dry-run",
            "what would be deleted",
        )],
    ),
    (
        "project duplicate",
        &[(
            "stasis project duplicate ~/shop-test --id shop-test",
            "a copy to try things in",
        )],
    ),
    (
        "project upgrade",
        &[(
            "stasis project upgrade ./upgrade.sh",
            "rolled back if it, or a health check, fails",
        )],
    ),
    (
        "project autosave",
        &[(
            "stasis project autosave --debounce 60",
            "a minute after the last change",
        )],
    ),
    // Kinds: working trees
    (
        "workspace",
        &[
            (
                "stasis workspace init .",
                "from now on this directory has checkpoints",
            ),
            ("stasis workspace create before-refactoring", "make one"),
            ("stasis workspace changes", "what differs from it"),
            (
                "stasis workspace restore before-refactoring",
                "go back; leaves an undo",
            ),
        ],
    ),
    (
        "workspace init",
        &[
            ("stasis workspace init .", "the directory you are in"),
            (
                "stasis workspace init ~/app --budget 5GB",
                "another one, with a budget",
            ),
        ],
    ),
    (
        "workspace watch",
        &[
            (
                "stasis workspace watch",
                "the workspace you are in, until Ctrl-C",
            ),
            ("stasis workspace watch ~/app", "another one"),
        ],
    ),
    (
        "workspace create",
        &[
            ("stasis workspace create", "numbered"),
            ("stasis workspace create before-refactoring", "with a name"),
        ],
    ),
    (
        "workspace list",
        &[
            ("stasis workspace list", "the newest first"),
            (
                "stasis workspace list --include-changes",
                "and what each changed",
            ),
        ],
    ),
    (
        "workspace changes",
        &[
            (
                "stasis workspace changes",
                "against the newest checkpoint that has each file",
            ),
            (
                "stasis workspace changes --since before-refactoring",
                "against one",
            ),
        ],
    ),
    (
        "workspace diff",
        &[
            (
                "stasis workspace diff src/main.rs",
                "with the newest checkpoint that differs",
            ),
            (
                "stasis workspace diff src before-refactoring",
                "a directory, with one",
            ),
        ],
    ),
    (
        "workspace revert",
        &[
            (
                "stasis workspace revert src/main.rs",
                "the newest version that differs",
            ),
            (
                "stasis workspace revert src before-refactoring --dry-run",
                "what would be done",
            ),
        ],
    ),
    (
        "workspace restore",
        &[
            (
                "stasis workspace restore before-refactoring --dry-run",
                "what would be done",
            ),
            (
                "stasis workspace restore before-refactoring",
                "the whole workspace",
            ),
        ],
    ),
    (
        "workspace history",
        &[(
            "stasis workspace history src/main.rs",
            "its versions in all checkpoints",
        )],
    ),
    (
        "workspace delete",
        &[(
            "stasis workspace delete before-refactoring",
            "by its name, or as cp-N",
        )],
    ),
    (
        "workspace compact",
        &[(
            "stasis workspace compact cp-10 cp-11 --name week-1",
            "two checkpoints into one",
        )],
    ),
    (
        "workspace fork",
        &[(
            "stasis workspace fork before-refactoring ~/try --n 3",
            "~/try-1, ~/try-2 and ~/try-3",
        )],
    ),
    (
        "workspace materialize",
        &[(
            "stasis workspace materialize before-refactoring --to ~/then",
            "a plain copy of it",
        )],
    ),
    (
        "workspace undo",
        &[("stasis workspace undo", "the last revert, restore or undo")],
    ),
    (
        "workspace check",
        &[("stasis workspace check", "every checkpoint, whole")],
    ),
    (
        "workspace status",
        &[(
            "stasis workspace status --workspace ~/app",
            "of another directory",
        )],
    ),
    // Agents
    (
        "rewind",
        &[
            ("stasis rewind --list", "the prompts one can go back to"),
            ("stasis rewind --dry-run", "what would change"),
            ("stasis rewind", "to before the last prompt"),
            ("stasis rewind -n 3", "to before the last three"),
        ],
    ),
    (
        "hook",
        &[
            (
                "stasis hook show",
                "which agents are here, and whether it works",
            ),
            (
                "stasis hook install claude-code",
                "shows the change first, and asks",
            ),
            ("stasis hook test claude-code", "try it as the agent does"),
        ],
    ),
    (
        "hook install",
        &[
            (
                "stasis hook install claude-code --dry-run",
                "only the change",
            ),
            ("stasis hook install codex", "for all your projects"),
            (
                "stasis hook install gemini --scope project",
                "for this one, its team too",
            ),
        ],
    ),
    (
        "hook uninstall",
        &[("stasis hook uninstall claude-code", "remove them again")],
    ),
    (
        "hook show",
        &[(
            "stasis hook show",
            "every agent, and what its hooks did last",
        )],
    ),
    (
        "hook test",
        &[(
            "stasis hook test claude-code",
            "in the directory you are in",
        )],
    ),
    (
        "hook run",
        &[(
            "stasis hook run claude-code",
            "what agents run; the event comes on standard input",
        )],
    ),
    (
        "mcp",
        &[
            (
                "stasis mcp --workspace ~/app",
                "serve one workspace, on standard input and output",
            ),
            ("stasis mcp install claude-code", "let an agent start it"),
        ],
    ),
    (
        "mcp install",
        &[(
            "stasis mcp install claude-code --dry-run",
            "only the change",
        )],
    ),
    (
        "mcp uninstall",
        &[("stasis mcp uninstall claude-code", "remove it again")],
    ),
    // Admin
    (
        "link",
        &[
            (
                "stasis link ~/copy dir:notes",
                "its saves join the snapshots of dir:notes",
            ),
            (
                "stasis link ~/copy dir:notes --confirm",
                "although another directory is dir:notes",
            ),
        ],
    ),
    (
        "copy",
        &[
            (
                "stasis copy ~/notes --to ~/usb/backup",
                "one directory, all its snapshots",
            ),
            (
                "stasis copy --all --to ~/usb/backup",
                "everything; again, what is new",
            ),
            (
                "stasis copy dir:notes --to s3://bucket/backups",
                "to a bucket",
            ),
        ],
    ),
    (
        "repair",
        &[
            ("stasis repair dir:notes", "what would be done"),
            ("stasis repair dir:notes --confirm", "do it"),
        ],
    ),
    (
        "serve",
        &[
            ("stasis serve", "the usual store, at 127.0.0.1:7070"),
            (
                "stasis serve --listen 10.0.0.5:7070 --allow-host stasis.example",
                "behind a proxy with TLS",
            ),
            (
                "stasis serve --metrics-prefix mantis",
                "metrics under another name",
            ),
            (
                "stasis serve --config fleet.toml --tls-cert tls.crt --tls-key tls.key",
                "with TLS of its own",
            ),
        ],
    ),
    (
        "ui",
        &[
            ("stasis ui", "the directory you are in"),
            (
                "stasis ui ~/shop --listen 127.0.0.1:7071",
                "another one, at this port",
            ),
        ],
    ),
    (
        "jobs",
        &[
            ("stasis jobs", "when each ran last, and who runs it"),
            (
                "stasis jobs --json",
                "the same for a program: `stuck`, and why",
            ),
        ],
    ),
    (
        "token",
        &[
            (
                "stasis token create --tenant acme --scope read --expires 30d",
                "shown once, alone on the last line",
            ),
            ("stasis token list", "who may ask"),
        ],
    ),
    (
        "token create",
        &[(
            "stasis token create --tenant acme --scope admin --description 'on call'",
            "shown once, alone on the last line",
        )],
    ),
    (
        "token list",
        &[("stasis token list --tenant acme", "of one tenant")],
    ),
    (
        "token revoke",
        &[("stasis token revoke 0123456789abcdef", "from now on")],
    ),
    (
        "key",
        &[
            (
                "stasis key init ~/stasis.key",
                "a new key; keep a copy of it elsewhere",
            ),
            (
                "stasis key rotate --key-file old.key --new-key-file new.key",
                "change keys",
            ),
        ],
    ),
    (
        "key init",
        &[(
            "stasis key init ~/stasis.key",
            "then: stasis save --key-file ~/stasis.key",
        )],
    ),
    (
        "key rotate",
        &[(
            "stasis key rotate --key-file old.key --new-key-file new.key",
            "everything of the tenant",
        )],
    ),
    (
        "events",
        &[
            ("stasis events", "forced, destructive and degraded acts"),
            (
                "stasis events --last 10 --json",
                "the newest ten, for a script",
            ),
        ],
    ),
    (
        "doctor",
        &[
            (
                "stasis doctor",
                "what works here, and what its absence costs",
            ),
            (
                "stasis doctor --store s3://bucket/backups",
                "with another store",
            ),
        ],
    ),
    (
        "demo",
        &[
            ("stasis demo", "on files of its own; yours are not touched"),
            (
                "stasis demo --keep",
                "and leave them there, to look around in",
            ),
        ],
    ),
    (
        "demo lease",
        &[("stasis demo lease", "two hosts, one browser profile")],
    ),
    (
        "completions",
        &[
            (
                "stasis completions bash > ~/.local/share/bash-completion/completions/stasis",
                "for bash-completion",
            ),
            (
                "stasis completions zsh > ~/.zfunc/_stasis",
                "with ~/.zfunc in $fpath, before compinit",
            ),
            (
                "stasis completions fish > ~/.config/fish/completions/stasis.fish",
                "fish reads it by itself",
            ),
        ],
    ),
    (
        "man",
        &[
            (
                "stasis man save > save.1",
                "of one command; then: man -l save.1",
            ),
            (
                "stasis man --dir ~/.local/share/man/man1",
                "all of them; then: man stasis, man stasis-save",
            ),
        ],
    ),
    // Kinds: containers
    (
        "container",
        &[
            (
                "stasis container create web",
                "save it with its volumes, while it runs",
            ),
            (
                "stasis container restore latest web",
                "make a second container of that",
            ),
            (
                "stasis container restore latest web --mode replace",
                "make it what it was",
            ),
        ],
    ),
    (
        "container create",
        &[
            (
                "stasis container create web",
                "its image on the engine, its volumes in the store",
            ),
            (
                "stasis container create web --trigger before_action --run-id r-7",
                "as an agent's callback does it",
            ),
        ],
    ),
    (
        "container restore",
        &[
            (
                "stasis container restore latest web",
                "beside it, with volumes of its own",
            ),
            (
                "stasis container restore 4f2a --name web-2 --port auto",
                "under another name, on free ports",
            ),
            (
                "stasis container restore latest web --mode replace",
                "instead of it; undo brings it back",
            ),
        ],
    ),
    (
        "container list",
        &[(
            "stasis container list web",
            "the snapshots of one container",
        )],
    ),
    (
        "container show",
        &[(
            "stasis container show latest web",
            "all that is known of it",
        )],
    ),
    (
        "container delete",
        &[("stasis container delete 4f2a", "the snapshot and its image")],
    ),
    (
        "container cleanup",
        &[
            (
                "stasis container cleanup --dry-run",
                "what is beyond the limits, and what was left behind",
            ),
            (
                "stasis container cleanup --max-age 36h",
                "remove it, and what is older than that",
            ),
        ],
    ),
    (
        "container stats",
        &[("stasis container stats", "snapshots, bytes and limits")],
    ),
    (
        "container diff",
        &[
            (
                "stasis container diff latest --of web",
                "what changed in it since then",
            ),
            (
                "stasis container diff latest~1 latest --of web",
                "between two snapshots",
            ),
        ],
    ),
    (
        "container export",
        &[
            (
                "stasis container export 4f2a web.tar.zst",
                "one file, with the image and the volumes",
            ),
            (
                "stasis container export latest snapshots --of web --layout seed",
                "a directory of plain files",
            ),
        ],
    ),
    (
        "container import",
        &[(
            "stasis container import web.tar.zst --restore",
            "on another host: the snapshot, and a container of it",
        )],
    ),
    (
        "container validate",
        &[
            (
                "stasis container validate web",
                "every mount, its size, and whether it travels",
            ),
            (
                "stasis container validate web --bind /srv --strict",
                "exits with 1 if anything would be left behind",
            ),
        ],
    ),
    // Kinds: sessions
    (
        "session",
        &[
            (
                "stasis session register acme/42 --dir /srv/42 --pid 4711",
                "it runs from now on",
            ),
            ("stasis session reap", "put to sleep what nobody uses"),
            ("stasis session wake acme/42", "where it left off"),
        ],
    ),
    (
        "session register",
        &[
            (
                "stasis session register acme/42 --dir /srv/42 --pid 4711",
                "a process runs it",
            ),
            (
                "stasis session register acme/43 --dir /srv/43 --terminate-cmd ./stop.sh",
                "a command ends its sandbox",
            ),
        ],
    ),
    (
        "session heartbeat",
        &[("stasis session heartbeat acme/42", "it is in use")],
    ),
    (
        "session list",
        &[
            ("stasis session list", "all of them"),
            (
                "stasis session list acme --json",
                "those of one tenant, for programs",
            ),
        ],
    ),
    (
        "session show",
        &[(
            "stasis session show acme/42",
            "its sandbox, its snapshot, how long it is idle",
        )],
    ),
    (
        "session snapshot",
        &[("stasis session snapshot acme/42", "save it; it goes on")],
    ),
    (
        "session sleep",
        &[(
            "stasis session sleep acme/42",
            "save it and end its sandbox",
        )],
    ),
    (
        "session wake",
        &[
            ("stasis session wake acme/42", "where it lay"),
            (
                "stasis session wake acme/42 --dir /srv/42 --start-cmd ./agent.sh",
                "on another host, with its sandbox",
            ),
        ],
    ),
    (
        "session reap",
        &[
            (
                "stasis session reap --dry-run",
                "what would be put to sleep",
            ),
            (
                "stasis session reap --background-snapshots 15m",
                "and save what runs every quarter of an hour",
            ),
        ],
    ),
    (
        "session fork",
        &[(
            "stasis session fork acme/42 acme/42-b",
            "a second session that begins as the first",
        )],
    ),
    (
        "session export",
        &[(
            "stasis session export acme/42 42.tar.gz",
            "its snapshot as one file",
        )],
    ),
    (
        "session delete",
        &[(
            "stasis session delete acme/42 --confirm",
            "with its snapshot",
        )],
    ),
    (
        "session delete-snapshot",
        &[(
            "stasis session delete-snapshot acme/42 --confirm",
            "the session stays",
        )],
    ),
    (
        "session run",
        &[(
            "stasis session run acme/42 --dir /srv/42 -- ./agent.sh",
            "wake it, run it, put it to sleep",
        )],
    ),
    // Plumbing
    (
        "lease",
        &[
            ("stasis lease show acme/alice@131", "who has it"),
            (
                "stasis lease hold acme/alice@131 -- ./job.sh",
                "run a command as its owner",
            ),
        ],
    ),
    (
        "lease acquire",
        &[(
            "stasis lease acquire acme/alice@131 --ttl 10m",
            "prints the token",
        )],
    ),
    (
        "lease renew",
        &[(
            "stasis lease renew acme/alice@131 --token \"$TOKEN\"",
            "before it expires",
        )],
    ),
    (
        "lease release",
        &[(
            "stasis lease release acme/alice@131 --token \"$TOKEN\"",
            "give it back",
        )],
    ),
    (
        "lease show",
        &[(
            "stasis lease show acme/alice@131",
            "its holder and when it expires",
        )],
    ),
    (
        "lease force-unlock",
        &[(
            "stasis lease force-unlock acme/alice@131 --reason 'host is gone' --confirm",
            "take it from its holder",
        )],
    ),
    (
        "lease reap",
        &[("stasis lease reap", "all whose holders are presumed dead")],
    ),
    (
        "lease hold",
        &[(
            "stasis lease hold acme/alice@131 -- ./job.sh",
            "stopped when the lease is lost",
        )],
    ),
    (
        "store",
        &[(
            "stasis store probe ~/usb/store",
            "whether it can be trusted with several writers",
        )],
    ),
    (
        "store probe",
        &[
            ("stasis store probe ~/usb/store", "a directory"),
            ("stasis store probe s3://bucket/backups", "a bucket"),
        ],
    ),
    (
        "operation",
        &[(
            "stasis operation show 0195b3e0-7c1a-4c55-9d5f-0d5a3c1e8b42",
            "the id is in the message",
        )],
    ),
    (
        "operation show",
        &[(
            "stasis operation show 0195b3e0-7c1a-4c55-9d5f-0d5a3c1e8b42",
            "applied, not applied, unknown",
        )],
    ),
    (
        "tenant",
        &[("stasis tenant policy show acme", "all settings")],
    ),
    (
        "tenant policy",
        &[
            ("stasis tenant policy show acme", "all settings"),
            (
                "stasis tenant policy set acme retention.enabled=true",
                "change one",
            ),
        ],
    ),
    (
        "tenant policy show",
        &[("stasis tenant policy show acme", "all settings")],
    ),
    (
        "tenant policy set",
        &[(
            "stasis tenant policy set acme lease_ttl_s=600 renew_s=120",
            "all or none",
        )],
    ),
    (
        "repo",
        &[
            ("stasis repo --repo ~/usb/store save ~/notes", "a directory"),
            ("stasis repo --repo ~/usb/store snapshots", "what is in it"),
            (
                "stasis repo --repo ~/usb/store check --read-data",
                "whether all is whole",
            ),
        ],
    ),
    (
        "repo init",
        &[("stasis repo init --repo ~/usb/store", "an empty one")],
    ),
    (
        "repo save",
        &[("stasis repo save ~/notes --name notes", "under a name")],
    ),
    (
        "repo restore",
        &[(
            "stasis repo restore latest ~/back --name notes",
            "to a new directory",
        )],
    ),
    (
        "repo undo",
        &[("stasis repo undo ~/back", "after restore --replace")],
    ),
    (
        "repo snapshots",
        &[("stasis repo snapshots --name notes", "of one name")],
    ),
    (
        "repo ls",
        &[("stasis repo ls latest src --name notes", "what is in src")],
    ),
    (
        "repo cat",
        &[("stasis repo cat latest plan.txt --name notes", "one file")],
    ),
    (
        "repo diff",
        &[(
            "stasis repo diff latest~1 latest --name notes",
            "between two snapshots",
        )],
    ),
    (
        "repo check",
        &[
            ("stasis repo check", "that everything is there"),
            ("stasis repo check --read-data", "and undamaged"),
        ],
    ),
    (
        "repo gc",
        &[(
            "stasis repo gc --keep-last 20 --dry-run",
            "what would be deleted, and why",
        )],
    ),
    (
        "repo forget",
        &[("stasis repo forget a27be8bc", "one snapshot")],
    ),
    (
        "repo retire",
        &[("stasis repo retire notes --confirm", "everything of a name")],
    ),
    (
        "repo pin",
        &[(
            "stasis repo pin 20261117T101500-0195b3e0",
            "an id in full, as snapshots --json prints it",
        )],
    ),
    (
        "repo unpin",
        &[(
            "stasis repo unpin 20261117T101500-0195b3e0",
            "let the policy decide again",
        )],
    ),
    ("repo stats", &[("stasis repo stats", "of the whole store")]),
    (
        "archive",
        &[
            (
                "stasis archive create ~/notes notes.tar.zst",
                "one file, which any tar reads",
            ),
            (
                "stasis archive extract notes.tar.zst ~/unpacked",
                "back to a directory",
            ),
        ],
    ),
    (
        "archive create",
        &[
            (
                "stasis archive create ~/notes notes.tar.zst",
                "a directory in one file",
            ),
            (
                "stasis archive create ~/notes new.tar.zst --base notes.tar.zst",
                "compress only what changed",
            ),
        ],
    ),
    (
        "archive extract",
        &[
            (
                "stasis archive extract notes.tar.zst ~/unpacked",
                "everything",
            ),
            (
                "stasis archive extract notes.tar.zst ~/part --path src",
                "only src",
            ),
        ],
    ),
    (
        "archive list",
        &[("stasis archive list notes.tar.zst", "with sizes")],
    ),
    (
        "archive cat",
        &[("stasis archive cat notes.tar.zst plan.txt", "one file")],
    ),
    (
        "archive verify",
        &[(
            "stasis archive verify notes.tar.zst",
            "read and compare all of it",
        )],
    ),
    (
        "clone",
        &[
            (
                "stasis clone ~/notes ~/notes-2",
                "shares bytes where the filesystem can",
            ),
            (
                "stasis clone ~/notes ~/notes-3 --exclude '*.log'",
                "without logs",
            ),
        ],
    ),
    (
        "schema",
        &[
            (
                "stasis schema save",
                "the JSON Schema of what `stasis save --json` prints",
            ),
            (
                "stasis schema workspace list",
                "of a command with two words",
            ),
            ("stasis schema error", "of errors"),
        ],
    ),
];
