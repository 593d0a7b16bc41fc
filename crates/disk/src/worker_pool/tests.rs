use super::*;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const FOUR: NonZeroUsize = NonZeroUsize::new(4).unwrap();

#[test]
fn tasks_that_add_tasks_are_all_performed_once() {
    let pool = WorkerPool::<u32, ()>::new([1]);
    let seen = Mutex::new(BTreeSet::new());
    let done = pool.run(FOUR, |pool| {
        pool.work(|number| {
            assert!(lock(&seen).insert(number), "{number} was performed twice");
            let children = [number * 2, number * 2 + 1];
            pool.push_first(children.into_iter().filter(|child| *child < 5_000));
            Ok(())
        });
    });
    assert_eq!(done, Ok(()));
    let all = into_inner(seen);
    assert_eq!(all, (1..5_000).collect());
}

#[test]
fn the_last_of_the_first_comes_first_and_urgent_ones_before_all() {
    let pool = WorkerPool::<&str, ()>::new(["start", "waits"]);
    let order = Mutex::new(Vec::new());
    let one = NonZeroUsize::MIN;
    let done = pool.run(one, |pool| {
        pool.work(|task| {
            lock(&order).push(task);
            if task == "start" {
                pool.push("later");
                pool.push_first(["second", "first"]);
                pool.push_urgent("urgent");
            }
            Ok(())
        });
    });
    assert_eq!(done, Ok(()));
    let wanted = ["start", "urgent", "first", "second", "waits", "later"];
    assert_eq!(into_inner(order), wanted);
}

#[test]
fn the_first_failure_counts_and_ends_everything() {
    let performed = AtomicUsize::new(0);
    let failed = WorkerPool::for_each(NonZeroUsize::MIN, 0..100, |number| {
        performed.fetch_add(1, Ordering::Relaxed);
        if number < 3 { Ok(()) } else { Err(number) }
    });
    assert_eq!(failed, Err(3));
    assert_eq!(performed.into_inner(), 4);

    let pool = WorkerPool::<u32, u32>::new([1]);
    let failed = pool.run(NonZeroUsize::MIN, |pool| {
        pool.work(|number| {
            pool.push(number + 1);
            pool.fail(number);
            assert!(pool.has_ended());
            pool.push(number + 1);
            Err(99)
        });
    });
    assert_eq!(
        failed,
        Err(1),
        "nothing is added after a failure, and the first counts"
    );
}

#[test]
fn a_helper_performs_urgent_tasks_only_until_what_it_waits_for_is_done() {
    // Task 0 offers pieces and waits until all of them are done; 1000 is an ordinary task that it must not begin.
    let pieces = AtomicUsize::new(0);
    let (helping, mixed) = (AtomicBool::new(false), AtomicBool::new(false));
    let pool = WorkerPool::<usize, ()>::new([0, 1000]);
    let perform = |task: usize| match task {
        1000 => mixed.store(helping.load(Ordering::SeqCst), Ordering::SeqCst),
        _ => {
            pieces.fetch_add(1, Ordering::SeqCst);
        }
    };
    let done = pool.run(NonZeroUsize::MIN, |pool| {
        pool.work(|task| {
            if task > 0 {
                perform(task);
                return Ok(());
            }
            for piece in 1..=10 {
                if let Some(back) = pool.try_push_urgent(piece, 4) {
                    perform(back);
                }
            }
            assert_eq!(pieces.load(Ordering::SeqCst), 6, "four wait, six came back");
            helping.store(true, Ordering::SeqCst);
            pool.help_until(
                || pieces.load(Ordering::SeqCst) == 10,
                |piece| {
                    perform(piece);
                    Ok(())
                },
            );
            helping.store(false, Ordering::SeqCst);
            Ok(())
        });
    });
    assert_eq!(done, Ok(()));
    assert!(!mixed.into_inner(), "a helper began an ordinary task");
}

#[test]
fn a_helper_hears_of_what_another_worker_did() {
    let (pool, done) = (WorkerPool::<u8, ()>::new([0]), AtomicBool::new(false));
    let two = NonZeroUsize::new(2).unwrap();
    let ended = pool.run(two, |pool| {
        pool.work(|task| {
            if task == 0 {
                pool.push(1);
                pool.help_until(|| done.load(Ordering::SeqCst), |_| Ok(()));
            } else {
                std::thread::sleep(Duration::from_millis(20));
                done.store(true, Ordering::SeqCst);
            }
            Ok(())
        });
    });
    assert_eq!(ended, Ok(()));
}

#[test]
fn a_panic_ends_the_pool_and_is_passed_on() {
    let pool = WorkerPool::<u32, ()>::new(0..10_000);
    let performed = AtomicUsize::new(0);
    let run = catch_unwind(AssertUnwindSafe(|| {
        pool.run(FOUR, |pool| {
            pool.work(|number| {
                performed.fetch_add(1, Ordering::Relaxed);
                assert!(number != 5, "on purpose");
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            });
        })
    }));
    assert!(run.is_err());
    assert!(performed.into_inner() < 5_000, "the others went on");
}

#[test]
fn a_feeder_gets_answers_and_its_workers_end_with_it() {
    let pool = WorkerPool::<u32, ()>::new([]);
    let (answers, heard) = channel();
    let workers = (0..4).map(move |_| {
        let answers = answers.clone();
        move |pool: &WorkerPool<u32, ()>| {
            pool.work(|number| answers.send(number).map_err(|_| ()));
        }
    });
    let sum = pool.run_fed(workers, |pool| {
        (1..=100).for_each(|number| pool.push(number));
        heard.iter().take(100).sum::<u32>()
    });
    assert_eq!(sum, 5050);
}

#[test]
fn what_waits_when_the_feeder_ends_is_performed_unless_it_failed() {
    for fails in [false, true] {
        let (pool, performed) = (WorkerPool::<u32, ()>::new([]), AtomicUsize::new(0));
        let workers = (0..2).map(|_| {
            |pool: &WorkerPool<u32, ()>| {
                pool.work(|_| {
                    std::thread::sleep(Duration::from_millis(1));
                    performed.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                });
            }
        });
        pool.run_fed(workers, |pool| {
            (0..100).for_each(|number| pool.push(number));
            if fails {
                pool.fail(());
            }
        });
        assert_eq!(performed.into_inner() == 100, !fails);
    }
}

#[test]
fn a_feeder_does_not_wait_for_a_worker_that_panicked() {
    let pool = WorkerPool::<u32, ()>::new([]);
    let (answers, heard) = channel::<u32>();
    let workers = (0..4).map(move |_| {
        let answers = answers.clone();
        move |pool: &WorkerPool<u32, ()>| {
            pool.work(|number| {
                assert!(number != 1, "on purpose");
                answers.send(number).map_err(|_| ())
            });
        }
    });
    let run = catch_unwind(AssertUnwindSafe(|| {
        pool.run_fed(workers, |pool| {
            pool.push(1);
            // All workers end, and their senders with them.
            assert!(heard.recv().is_err());
        });
    }));
    assert!(run.is_err());
}
