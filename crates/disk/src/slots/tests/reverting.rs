//! What a revert does when somebody else is at the same entry.

use super::*;

/// A workspace, and a checkpoint that has `a` and `d` otherwise, and no `new`.
fn world() -> (World, Beneath) {
    let world = World::new();
    for name in ["a", "d/b"] {
        world.write(name, "then");
    }
    let pool = world.pool(1 << 30);
    let _ = auto(&pool, 0).unwrap();
    for name in ["a", "d/b", "new"] {
        world.write(name, "now");
    }
    let tree = pool.tree(Slot::new(0)).unwrap();
    (world, tree)
}

#[test]
fn an_entry_that_somebody_changed_when_its_successor_was_ready_is_not_touched() {
    for (name, file) in [("a", "a"), ("d", "d/b"), ("new", "new")] {
        let (world, tree) = world();
        let asked = AtomicU64::new(0);
        let still = || {
            asked.fetch_add(1, Ordering::Relaxed);
            let is_built = names(&world.live())
                .iter()
                .any(|one| one.contains("stasis-tmp"));
            assert!(is_built || name == "new", "it is asked last of all");
            world.write(file, "edited");
            false
        };

        let refused = revert_if(&world.root(), &tree, &path(name), &still).unwrap_err();

        assert!(matches!(refused, RevertError::Changed(_)), "{refused}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(world.read(file), "edited");
        assert_eq!(names(&world.live()), ["a", "d", "new"], "nothing is left");
    }
}

#[test]
fn an_entry_that_is_right_is_not_asked_about() {
    let (world, tree) = world();
    world.write("a", "then");

    let reverted = revert_if(&world.root(), &tree, &path("a"), &|| false);

    assert_eq!(reverted.unwrap(), Unchanged);
}
