use super::*;
use crate::bridge;
use std::io;

/// A kind that writes down which steps were taken, and fails at one of them.
struct Recorded<'a> {
    steps: &'a mut Vec<&'static str>,
    fails_at: &'static str,
}

impl Recorded<'_> {
    fn step(&mut self, name: &'static str) -> Result<&'static str, Error> {
        self.steps.push(name);
        if self.fails_at == name {
            let refused = io::ErrorKind::PermissionDenied;
            return Err(crate::error::refused("take", Path::new(name), refused));
        }
        Ok(name)
    }
}

impl RestoreKind for Recorded<'_> {
    type Kept = &'static str;
    type Staged = &'static str;
    type Swapped = &'static str;
    type Restored = Vec<&'static str>;

    async fn guard(&mut self) -> Result<(), Error> {
        self.step("guard").map(drop)
    }

    async fn keep(&mut self) -> Result<&'static str, Error> {
        self.step("keep")
    }

    async fn stage(&mut self) -> Result<&'static str, Error> {
        self.step("stage")
    }

    async fn swap(
        &mut self,
        staged: &'static str,
        kept: &&'static str,
    ) -> Result<&'static str, Error> {
        assert_eq!((staged, *kept), ("stage", "keep"));
        self.step("swap")
    }

    async fn settle(
        mut self,
        swapped: &'static str,
        kept: &'static str,
    ) -> Result<Vec<&'static str>, Error> {
        assert_eq!((swapped, kept), ("swap", "keep"));
        self.step("settle")?;
        Ok(self.steps.clone())
    }
}

const ORDER: [&str; 5] = ["guard", "keep", "stage", "swap", "settle"];

#[test]
fn what_will_be_replaced_is_kept_before_anything_is_staged_or_swapped() {
    let mut steps = Vec::new();
    let restored = bridge::ready(carry_out(Recorded {
        steps: &mut steps,
        fails_at: "nothing",
    }));

    assert_eq!(restored.unwrap(), ORDER);
}

#[test]
fn after_a_step_that_failed_no_other_one_is_taken() {
    for (at, name) in ORDER.into_iter().enumerate() {
        let mut steps = Vec::new();
        let refused = bridge::ready(carry_out(Recorded {
            steps: &mut steps,
            fails_at: name,
        }));

        assert!(refused.is_err(), "{name}");
        assert_eq!(steps, ORDER[..=at], "{name}");
    }
}

fn path(text: &str) -> EntryPath {
    text.parse().unwrap()
}

#[test]
fn a_plan_wants_what_is_named_with_its_journals_and_nothing_that_stays() {
    let plan = RestorePlan {
        only: vec![path("data"), path("app.db")],
        except: vec![path("data/private")],
        ..RestorePlan::whole(())
    };

    let wanted = ["data", "data/notes", "app.db", "app.db-wal"];
    assert!(wanted.iter().all(|one| plan.is_wanted(&path(one))));
    let others = ["data/private", "data/private/key", "database", "app.db2"];
    assert!(!others.iter().any(|one| plan.is_wanted(&path(one))));
    assert!(plan.leaves(&path("data/private/key")) && !plan.leaves(&path("data")));
}

#[test]
fn a_plan_that_names_nothing_wants_everything_but_what_stays() {
    let plan = RestorePlan {
        except: vec![path("app.db")],
        ..RestorePlan::whole(())
    };

    assert!(plan.is_whole() && plan.is_wanted(&path("anything")));
    assert!(plan.is_excepted(&path("app.db-wal")) && !plan.is_wanted(&path("app.db-wal")));
}
