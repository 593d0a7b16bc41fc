//! Who is measured, and what each is asked to do.
//!
//! Lines are run by `bash` and use these variables: `TREE` (what is saved), `REPO` (an empty directory that is all the
//! tool's own), `CACHE` (another one, beside), `TARGET` (where the tree is restored; it is not there yet), `FILE` (a path in
//! the tree) and `OUT` (where that one file goes), `N` and `BEFORE` (the numbers of this save and the last one).

use crate::compare::Fidelity;

/// One way to save and restore a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// The program that must be there; none means Stasis itself.
    pub(crate) program: Option<&'static str>,
    /// Prints its version; the first line counts.
    pub(crate) version: &'static str,
    pub(crate) prepare: &'static str,
    pub(crate) first: &'static str,
    /// Saves once more; empty when the tool always starts from nothing.
    pub(crate) again: &'static str,
    /// Restores the newest save; empty when `first` made the tree itself.
    pub(crate) restore: &'static str,
    /// Where in `TARGET` the tree is then.
    pub(crate) restored: Restored,
    pub(crate) one_file: &'static str,
    pub(crate) fidelity: Fidelity,
}

/// Where a restored tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Restored {
    /// At the target.
    Here,
    /// Below the target under its whole path.
    ByPath,
}

/// The names of Stasis' own ways.
pub(crate) const REPO: &str = "stasis repo";
pub(crate) const ARCHIVE: &str = "stasis archive";
pub(crate) const CLONE: &str = "stasis clone";
pub(crate) const CHECKPOINT: &str = "stasis workspace";
/// Those that store only what is new: the chunked form is judged by the best of them.
pub(crate) const DEDUPLICATING: [&str; 5] = ["bupstash", "rustic", "restic", "borg", "desync"];
pub(crate) const GIT: &str = "git (shadow)";
pub(crate) const TAR_3: &str = "tar, zstd -3 -T2";
pub(crate) const TAR_9: &str = "tar, zstd -9 -T2";
pub(crate) const COPY: &str = "cp -a";
pub(crate) const REFLINK: &str = "cp -a --reflink=always";
pub(crate) const SNAPSHOT: &str = "btrfs subvolume snapshot";

const NOTHING: Tool = Tool {
    name: "",
    program: None,
    version: "",
    prepare: "true",
    first: "",
    again: "",
    restore: "",
    restored: Restored::Here,
    one_file: "",
    fidelity: Fidelity::FULL,
};

/// Everybody who saves trees.
pub(crate) const SAVERS: [Tool; 12] = [
    Tool {
        name: REPO,
        version: r#""$STASIS" --version"#,
        prepare: r#""$STASIS" --json repo init --repo "$REPO/r""#,
        first: r#"exec "$STASIS" --json repo save --repo "$REPO/r" "$TREE""#,
        again: r#"exec "$STASIS" --json repo save --repo "$REPO/r" "$TREE""#,
        restore: r#"exec "$STASIS" --json repo restore --repo "$REPO/r" latest "$TARGET""#,
        one_file: r#"exec "$STASIS" repo cat --repo "$REPO/r" latest "$FILE" > "$OUT""#,
        fidelity: Fidelity::COMMITTED,
        ..NOTHING
    },
    // In chunks, because its session directory is not where blocks are shared.
    Tool {
        name: CHECKPOINT,
        version: r#""$STASIS" --version"#,
        prepare: r#""$STASIS" --json workspace init "$TREE" --no-checkpoint --budget 100GB --session-dir "$REPO/session""#,
        first: r#"exec "$STASIS" --json workspace create --workspace "$TREE""#,
        again: r#"exec "$STASIS" --json workspace create --workspace "$TREE""#,
        // Not through a pipe, which `grep` would close before everything is written.
        restore: r#""$STASIS" --json workspace list --workspace "$TREE" > "$CACHE/list"
            cp=$(grep -m1 '"checkpoint"' "$CACHE/list" | cut -d'"' -f4)
            exec "$STASIS" --json workspace fork "$cp" "$TARGET" --workspace "$TREE""#,
        ..NOTHING
    },
    Tool {
        name: ARCHIVE,
        version: r#""$STASIS" --version"#,
        first: r#"exec "$STASIS" --json archive create "$TREE" "$REPO/$N.tar.zst" --level 9"#,
        again: r#"exec "$STASIS" --json archive create "$TREE" "$REPO/$N.tar.zst" --level 9 --base "$REPO/$BEFORE.tar.zst""#,
        restore: r#"exec "$STASIS" --json archive extract "$REPO/$N.tar.zst" "$TARGET""#,
        one_file: r#"exec "$STASIS" archive cat "$REPO/$N.tar.zst" "$FILE" > "$OUT""#,
        ..NOTHING
    },
    Tool {
        name: "bupstash",
        program: Some("bupstash"),
        version: "bupstash version",
        prepare: r#"bupstash init -r "$REPO/r" && bupstash new-key -o "$CACHE/key""#,
        first: r#"bupstash put -q -r "$REPO/r" -k "$CACHE/key" --send-log "$CACHE/log" name=tree "$TREE" > "$CACHE/id""#,
        again: r#"bupstash put -q -r "$REPO/r" -k "$CACHE/key" --send-log "$CACHE/log" name=tree "$TREE" > "$CACHE/id""#,
        restore: r#"mkdir "$TARGET" && bupstash restore -q -r "$REPO/r" -k "$CACHE/key" --query-cache "$CACHE/query" --into "$TARGET" id="$(cat "$CACHE/id")""#,
        one_file: r#"bupstash get -q -r "$REPO/r" -k "$CACHE/key" --query-cache "$CACHE/query" --pick "$FILE" id="$(cat "$CACHE/id")" > "$OUT""#,
        ..NOTHING
    },
    Tool {
        name: "rustic",
        program: Some("rustic"),
        version: "rustic --version",
        prepare: r#"rustic --no-progress -r "$REPO/r" --password x init"#,
        first: r#"rustic --no-progress -r "$REPO/r" --password x backup "$TREE""#,
        again: r#"rustic --no-progress -r "$REPO/r" --password x backup "$TREE""#,
        restore: r#"rustic --no-progress -r "$REPO/r" --password x restore "latest:$TREE" "$TARGET""#,
        one_file: r#"rustic --no-progress -r "$REPO/r" --password x dump "latest:$TREE/$FILE" > "$OUT""#,
        ..NOTHING
    },
    Tool {
        name: "restic",
        program: Some("restic"),
        version: "restic version",
        prepare: r#"RESTIC_PASSWORD=x restic -q -r "$REPO/r" init"#,
        first: r#"RESTIC_PASSWORD=x restic -q -r "$REPO/r" backup "$TREE""#,
        again: r#"RESTIC_PASSWORD=x restic -q -r "$REPO/r" backup "$TREE""#,
        restore: r#"RESTIC_PASSWORD=x restic -q -r "$REPO/r" restore latest --target "$TARGET""#,
        restored: Restored::ByPath,
        one_file: r#"RESTIC_PASSWORD=x restic -q -r "$REPO/r" dump latest "$TREE/$FILE" > "$OUT""#,
        ..NOTHING
    },
    Tool {
        name: "borg",
        program: Some("borg"),
        version: "borg --version",
        prepare: r#"borg init -e none "$REPO/r""#,
        first: r#"cd "$TREE" && borg create -C zstd,3 "$REPO/r::$N" ."#,
        again: r#"cd "$TREE" && borg create -C zstd,3 "$REPO/r::$N" ."#,
        restore: r#"mkdir "$TARGET" && cd "$TARGET" && borg extract "$REPO/r::$N""#,
        one_file: r#"borg extract --stdout "$REPO/r::$N" "$FILE" > "$OUT""#,
        ..NOTHING
    },
    Tool {
        name: "desync",
        program: Some("desync"),
        version: "echo desync",
        prepare: r#"mkdir "$REPO/s""#,
        first: r#"desync tar -i -s "$REPO/s" "$REPO/$N.caidx" "$TREE""#,
        again: r#"desync tar -i -s "$REPO/s" "$REPO/$N.caidx" "$TREE""#,
        restore: r#"mkdir "$TARGET" && desync untar -i -s "$REPO/s" "$REPO/$N.caidx" "$TARGET""#,
        ..NOTHING
    },
    Tool {
        name: "casync",
        program: Some("casync"),
        version: "casync --version",
        first: r#"casync make --store="$REPO/s.castr" "$REPO/$N.caidx" "$TREE" > /dev/null"#,
        again: r#"casync make --store="$REPO/s.castr" "$REPO/$N.caidx" "$TREE" > /dev/null"#,
        restore: r#"casync extract --store="$REPO/s.castr" "$REPO/$N.caidx" "$TARGET""#,
        ..NOTHING
    },
    Tool {
        name: GIT,
        program: Some("git"),
        version: "git --version",
        prepare: r#"git init -q --bare "$REPO/r" && git -C "$REPO/r" config core.bare false && git -C "$REPO/r" config gc.auto 0"#,
        first: r#"export GIT_DIR="$REPO/r" GIT_WORK_TREE="$TREE"; cd "$TREE" && git add -A && git commit -q --allow-empty -m "$N""#,
        again: r#"export GIT_DIR="$REPO/r" GIT_WORK_TREE="$TREE"; cd "$TREE" && git add -A && git commit -q --allow-empty -m "$N""#,
        restore: r#"mkdir "$TARGET" && export GIT_DIR="$REPO/r" GIT_WORK_TREE="$TARGET" GIT_INDEX_FILE="$CACHE/index"; cd "$TARGET" && git read-tree HEAD && git checkout-index -a -q"#,
        one_file: r#"git --git-dir="$REPO/r" show "HEAD:$FILE" > "$OUT""#,
        fidelity: Fidelity::BYTES,
        ..NOTHING
    },
    Tool {
        name: TAR_3,
        program: Some("zstd"),
        version: "zstd --version",
        first: r#"tar -C "$TREE" -cf - . | zstd -q -3 -T2 -o "$REPO/a.tar.zst""#,
        restore: r#"mkdir "$TARGET" && zstd -q -dc "$REPO/a.tar.zst" | tar -C "$TARGET" -xpf -"#,
        one_file: r#"zstd -q -dc "$REPO/a.tar.zst" | tar -xOf - "./$FILE" > "$OUT""#,
        fidelity: Fidelity::SECONDS,
        ..NOTHING
    },
    Tool {
        name: TAR_9,
        program: Some("zstd"),
        version: "zstd --version",
        first: r#"tar -C "$TREE" -cf - . | zstd -q -9 -T2 -o "$REPO/a.tar.zst""#,
        restore: r#"mkdir "$TARGET" && zstd -q -dc "$REPO/a.tar.zst" | tar -C "$TARGET" -xpf -"#,
        one_file: r#"zstd -q -dc "$REPO/a.tar.zst" | tar -xOf - "./$FILE" > "$OUT""#,
        fidelity: Fidelity::SECONDS,
        ..NOTHING
    },
];

/// Everybody who makes a second tree at once; `first` makes it, after what `prepare` does unmeasured.
pub(crate) const COPIERS: [Tool; 5] = [
    Tool {
        name: CLONE,
        version: r#""$STASIS" --version"#,
        first: r#"exec "$STASIS" --json clone "$TREE" "$TARGET""#,
        ..NOTHING
    },
    // As it is every five minutes: the second checkpoint of a session, which knows the tree from the first.
    Tool {
        name: CHECKPOINT,
        version: r#""$STASIS" --version"#,
        prepare: r#"export XDG_STATE_HOME="$TARGET.state" && rm -rf "$TARGET.state" "$TARGET.session"
            "$STASIS" --json workspace init "$TREE" --no-checkpoint --budget 100GB --session-dir "$TARGET.session" > /dev/null
            "$STASIS" --json workspace create one --workspace "$TREE" > /dev/null"#,
        first: r#"export XDG_STATE_HOME="$TARGET.state"
            exec "$STASIS" --json workspace create two --workspace "$TREE""#,
        restore: r#"export XDG_STATE_HOME="$TARGET.state"
            exec "$STASIS" --json workspace materialize two --workspace "$TREE" --to "$TARGET""#,
        ..NOTHING
    },
    Tool {
        name: REFLINK,
        program: Some("cp"),
        version: "cp --version",
        first: r#"exec cp -a --reflink=always "$TREE" "$TARGET""#,
        ..NOTHING
    },
    Tool {
        name: COPY,
        program: Some("cp"),
        version: "cp --version",
        first: r#"exec cp -a --reflink=never "$TREE" "$TARGET""#,
        ..NOTHING
    },
    Tool {
        name: SNAPSHOT,
        program: Some("btrfs"),
        version: "btrfs --version",
        first: r#"btrfs subvolume snapshot "$TREE" "$TARGET" > /dev/null"#,
        ..NOTHING
    },
];
