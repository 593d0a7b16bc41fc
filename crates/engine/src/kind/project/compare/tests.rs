//! What a diff says of databases when the process that opens them dies.

use super::*;
use crate::check::Spawn;
use crate::kind::project::{Home, Host};
use crate::open::{AwsSettings, Engine, LocalDirs, Open};
use crate::system::{SystemClock, SystemRng};
use rusqlite::Connection;
use stasis_quiesce::watchdog::HelperCommand;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A plain directory, on a host where that process is `/bin/false`.
async fn project(home: &Path) -> Project {
    let (dir, state) = (home.join("notes"), home.join("state"));
    fs::create_dir(&dir).unwrap();
    let open = Open {
        location: format!("file://{}", home.join("store").display())
            .parse()
            .unwrap(),
        create: true,
        aws: AwsSettings::default(),
        local_dirs: LocalDirs {
            cache: None,
            state: Some(state.clone()),
        },
    };
    let engine = Engine::open(open, Arc::new(SystemClock), Arc::new(SystemRng));
    let host = Host {
        variables: BTreeMap::new(),
        check: Spawn {
            program: "/bin/false".into(),
            arguments: Vec::new(),
        },
        watchdog: HelperCommand::this_program(&[]),
    };
    let found = Home::find(&dir, Some(&state)).await.unwrap();
    let tenant = "default".parse().unwrap();
    engine.await.unwrap().project(found, &tenant, host)
}

#[tokio::test]
async fn databases_of_snapshots_are_opened_by_another_process_and_by_nobody_else() {
    let home = tempfile::tempdir().unwrap();
    let project = project(home.path()).await;
    let saved = async |sql: &str| {
        let database = Connection::open(home.path().join("notes/app.db")).unwrap();
        database.execute_batch(sql).unwrap();
        drop(database);
        let saved = project.save(ProjectSave::new(SaveReason::Manual)).await;
        SnapshotRef::Text(saved.unwrap().saved.snapshot_id.to_string())
    };
    let before = saved("CREATE TABLE t(x)").await;
    let after = saved("INSERT INTO t VALUES (1)").await;

    let diff = project.diff(&before, Some(&after)).await.unwrap();

    let paths: Vec<&str> = diff.items.iter().map(|one| &*one.path).collect();
    assert_eq!(paths, ["app.db"]);
    assert_eq!(diff.tables, []);
    let [uncounted] = &diff.uncounted[..] else {
        panic!("{:?}", diff.uncounted);
    };
    assert_eq!(uncounted.path, "app.db");
    let why = &uncounted.why;
    assert!(why.contains("died without an answer"), "{why}");
}
