use super::*;
use crate::tools::SAVERS;
use crate::workload::World;
use tempfile::TempDir;

/// Copies the whole tree each time: the simplest tool there is.
fn copier() -> Tool {
    Tool {
        name: "copier",
        program: None,
        version: "",
        prepare: "true",
        first: r#"cp -a "$TREE" "$REPO/$N""#,
        again: r#"cp -a "$TREE" "$REPO/$N""#,
        restore: r#"cp -a "$REPO/$N" "$TARGET""#,
        one_file: r#"cat "$REPO/$N/$FILE" > "$OUT""#,
        ..SAVERS[0]
    }
}

fn place(workload: Workload) -> (TempDir, Bench, Subject) {
    let home = tempfile::tempdir().unwrap();
    let world = World::new(3, 0.002);
    let at = |name: &str| home.path().join(name);
    workload.write(&world, &at("tree")).unwrap();
    let subject = Subject::prepare(workload, &world, home.path()).unwrap();
    let bench = Bench {
        scratch: home.path().to_owned(),
        variables: Vec::new(),
        drop_caches: false,
        quiet: Duration::ZERO,
    };
    (home, bench, subject)
}

#[test]
fn a_tool_goes_through_all_phases_and_the_tree_is_afterwards_what_it_was() {
    let (_home, bench, subject) = place(Workload::Database);
    let before = measure::stored(&subject.tree).unwrap();
    let mut samples = Samples::new();

    bench.save(&copier(), &subject, &mut samples).unwrap();

    let measured: Vec<Measure> = samples.keys().copied().collect();
    let all = {
        use Measure::{Added, Changed, First, Inserted, Memory, OneFile, Restore, Size, Unchanged};
        [
            First, Unchanged, Changed, Restore, OneFile, Size, Added, Inserted, Memory,
        ]
    };
    assert_eq!(measured, all);
    assert_eq!(measure::stored(&subject.tree).unwrap(), before);
    let inserted = samples[&Measure::Inserted][0] - samples[&Measure::Added][0];
    assert!(
        (inserted - 7e-6).abs() < 1e-9,
        "seven bytes more: {inserted}"
    );
}

#[test]
fn a_tool_that_restores_something_else_has_failed() {
    let (_home, bench, subject) = place(Workload::Profile);
    let forgetful = Tool {
        restore: r#"cp -a "$REPO/1" "$TARGET""#,
        ..copier()
    };
    let careless = Tool {
        one_file: r#"head -c 10 "$TREE/$FILE" > "$OUT""#,
        ..copier()
    };
    let mut samples = Samples::new();

    let forgot = bench.save(&forgetful, &subject, &mut samples).unwrap_err();
    let cut = bench.save(&careless, &subject, &mut samples).unwrap_err();

    assert!(
        format!("{forgot:#}").contains("the restored tree is wrong"),
        "{forgot:#}"
    );
    assert!(format!("{cut:#}").contains("other bytes"), "{cut:#}");
}
