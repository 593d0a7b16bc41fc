use super::*;
use crate::compare::{self, Fidelity};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;

const SEED: u64 = 7;
const TINY: f64 = 0.01;

fn written(workload: Workload, world: &World) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("tree");
    workload.write(world, &root).unwrap();
    (home, root)
}

fn is_near(value: u64, wanted: u64, percent: u64) -> bool {
    value.abs_diff(wanted) * 100 <= wanted * percent
}

/// How many times smaller level 9 makes the files of a tree, one after the other.
fn ratio(root: &Path) -> f64 {
    let (mut plain, mut paths) = (0, vec![root.to_owned()]);
    let mut packed = zstd::Encoder::new(Vec::new(), 9).unwrap();
    while let Some(path) = paths.pop() {
        let seen = fs::symlink_metadata(&path).unwrap();
        if seen.is_dir() {
            let mut inside: Vec<_> = fs::read_dir(&path)
                .unwrap()
                .map(|e| e.unwrap().path())
                .collect();
            inside.sort();
            paths.extend(inside);
        } else if seen.is_file() {
            let bytes = fs::read(&path).unwrap();
            plain += bytes.len();
            packed.write_all(&bytes).unwrap();
        }
    }
    let packed = packed.finish().unwrap().len();
    f64::from(u32::try_from(plain).unwrap()) / f64::from(u32::try_from(packed).unwrap())
}

#[test]
fn at_full_size_the_trees_have_the_shape_that_is_promised() {
    let world = World::new(SEED, 1.0);

    let profile = Workload::Profile.shape(&world);
    let workspace = Workload::Workspace.shape(&world);
    let database = Workload::Database.shape(&world);

    println!("{profile:?} {workspace:?} {database:?}");
    assert!(is_near(profile.0 as u64, 4000, 1), "{profile:?}");
    assert!(is_near(profile.1 as u64, 650, 1), "{profile:?}");
    assert!(is_near(profile.3, 630_000_000, 3), "{profile:?}");
    assert_eq!(
        (workspace.0, workspace.1, workspace.2),
        (50_000, 10_500, 300)
    );
    assert!(is_near(workspace.3, 444_000_000, 2), "{workspace:?}");
    assert_eq!(database, (1, 0, 0, 1 << 30));
}

#[test]
fn no_two_entries_have_one_name() {
    for (workload, scale) in Workload::ALL
        .into_iter()
        .flat_map(|one| [(one, 1.0), (one, TINY)])
    {
        let plan = workload.plan(&World::new(SEED, scale));
        let names: BTreeSet<&str> = plan.iter().map(|one| &*one.path).collect();
        assert_eq!(names.len(), plan.len(), "{workload:?} at {scale}");
        assert!(names.contains(workload.one_file()));
    }
}

#[test]
fn the_same_seed_makes_the_same_tree_and_another_seed_another() {
    for workload in Workload::ALL {
        let (_one, first) = written(workload, &World::new(SEED, TINY));
        let (_two, again) = written(workload, &World::new(SEED, TINY));
        let (_three, other) = written(workload, &World::new(SEED + 1, TINY));

        let same = compare::trees(&first, &again, Fidelity::FULL).unwrap();
        let different = compare::trees(&first, &other, Fidelity::FULL).unwrap();

        assert_eq!(same, Vec::<String>::new(), "{workload:?}");
        assert!(!different.is_empty(), "{workload:?}");
    }
}

#[test]
fn the_trees_compress_as_promised() {
    let world = World::new(SEED, TINY);
    for (workload, low, high) in [
        (Workload::Profile, 2.3, 2.9),
        (Workload::Workspace, 2.6, 4.2),
        (Workload::Database, 2.6, 4.2),
    ] {
        let (_home, root) = written(workload, &world);
        let ratio = ratio(&root);
        println!("{workload:?}: {ratio:.2}");
        assert!((low..high).contains(&ratio), "{workload:?}: {ratio}");
    }
}

#[test]
fn a_variant_can_be_swapped_in_and_out() {
    let world = World::new(SEED, TINY);
    for workload in Workload::ALL {
        let (home, root) = written(workload, &world);
        let (_other, before) = written(workload, &world);
        let variant = workload
            .changed(&world, &root, &home.path().join("aside"))
            .unwrap();

        variant.swap_in().unwrap();
        let differs = compare::trees(&before, &root, Fidelity::BYTES).unwrap();
        variant.swap_out().unwrap();

        let (replaced, added, deleted) = variant.counts();
        assert!(
            !differs.is_empty() && differs.len() <= replaced + added + deleted,
            "{differs:?}"
        );
        let restored = compare::trees(&before, &root, Fidelity::BYTES).unwrap();
        assert_eq!(restored, Vec::<String>::new());
    }
}

#[test]
fn an_agents_step_edits_fifty_files_adds_twenty_and_deletes_ten() {
    let world = World::new(SEED, TINY);
    let (home, root) = written(Workload::Workspace, &world);

    let variant = Workload::Workspace
        .changed(&world, &root, &home.path().join("aside"))
        .unwrap();

    assert_eq!(variant.counts(), (50, 20, 10));
}

#[test]
fn seven_bytes_are_inserted_near_the_start_and_nothing_else_changes() {
    let world = World::new(SEED, TINY);
    let (home, root) = written(Workload::Database, &world);
    let before = fs::read(root.join("data.db")).unwrap();

    let variant = Workload::Database
        .inserted(&root, &home.path().join("aside"))
        .unwrap();
    variant.unwrap().swap_in().unwrap();

    let after = fs::read(root.join("data.db")).unwrap();
    assert_eq!(after.len(), before.len() + 7);
    assert!(after[..5000] == before[..5000] && after[5007..] == before[5000..]);
}
