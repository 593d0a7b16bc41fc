use super::*;
use crate::process::{Process, ProcessInfo, ProcessState};
use std::fs;
use std::path::Path;

fn shell(text: &str, timeout: Duration) -> HookCommand {
    HookCommand {
        call: Invocation::shell(text),
        timeout,
    }
}

const LONG: Duration = Duration::from_secs(20);

/// The process whose number is in a file, once there is one.
async fn named_in(path: &Path) -> Process {
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.ends_with('\n') {
            let pid = text.trim().parse().unwrap();
            return Process::open(pid).unwrap().expect("it runs");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn is_gone(process: &Process) -> bool {
    for _ in 0..500 {
        if !process.is_running() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    false
}

#[tokio::test]
async fn what_a_command_says_and_how_it_ended_is_told() {
    let outcome = run(&shell("echo out; echo err >&2; exit 3", LONG))
        .await
        .unwrap();
    let killed = run(&shell("kill -9 $$", LONG)).await.unwrap();

    assert_eq!(outcome.ending, HookExit::Exited(3));
    assert!(!outcome.succeeded());
    assert_eq!(outcome.stdout.bytes, b"out\n");
    assert_eq!(outcome.stderr.text(), "err\n");
    assert_eq!(killed.ending, HookExit::Signalled(9));
}

#[tokio::test]
async fn words_reach_a_program_as_they_are_in_its_directory_with_its_variables() {
    let home = tempfile::tempdir().unwrap();
    let mut call = Invocation::words([
        "sh",
        "-c",
        "pwd; echo \"$1\" $COLOUR; cat",
        "sh",
        "$HOME; x",
    ]);
    call.directory = Some(home.path().canonicalize().unwrap());
    call.environment = vec![("COLOUR".into(), "blue".into())];

    let outcome = run(&HookCommand {
        call,
        timeout: LONG,
    })
    .await
    .unwrap();

    let directory = home.path().canonicalize().unwrap();
    let expected = format!("{}\n$HOME; x blue\n", directory.display());
    assert!(outcome.succeeded(), "standard input is empty: {outcome:?}");
    assert_eq!(outcome.stdout.text(), expected);
}

#[tokio::test]
async fn a_command_whose_time_is_over_is_killed_with_all_it_started() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pid");
    let text = format!(
        "trap '' TERM; sleep 60 & echo $! > {}; echo begun; wait",
        file.display()
    );
    let hook = shell(&text, Duration::from_millis(400));
    let (outcome, grandchild) = tokio::join!(run(&hook), named_in(&file));

    let outcome = outcome.unwrap();

    assert_eq!(outcome.ending, HookExit::TimedOut);
    assert_eq!(
        outcome.stdout.bytes, b"begun\n",
        "what it said before is kept"
    );
    assert!(outcome.elapsed >= Duration::from_millis(400));
    assert!(outcome.elapsed < Duration::from_secs(5), "{outcome:?}");
    assert!(is_gone(&grandchild).await);
}

#[tokio::test]
async fn a_command_that_closed_its_outputs_is_still_waited_for_and_timed() {
    let quick = run(&shell("exec >&- 2>&-; sleep 0.2; exit 5", LONG))
        .await
        .unwrap();
    let hangs = shell("exec >&- 2>&-; sleep 60", Duration::from_millis(300));
    let slow = run(&hangs).await.unwrap();

    assert_eq!(quick.ending, HookExit::Exited(5));
    assert_eq!(slow.ending, HookExit::TimedOut);
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_any_more_is_killed_with_all_it_started() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pid");
    let hook = shell(
        &format!("sleep 60 & echo $! > {}; wait", file.display()),
        LONG,
    );
    let running = run(&hook);
    let grandchild = tokio::select! {
        _ = running => panic!("it does not end by itself"),
        process = named_in(&file) => process,
    };

    assert!(is_gone(&grandchild).await);
}

#[tokio::test]
async fn something_left_behind_that_keeps_the_pipe_open_does_not_hold_the_caller_up() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pid");
    let text = format!("sleep 60 & echo $! > {}; echo done", file.display());

    let outcome = run(&shell(&text, LONG)).await.unwrap();

    let left = named_in(&file).await;
    assert!(outcome.succeeded());
    assert_eq!(outcome.stdout.bytes, b"done\n");
    assert!(outcome.elapsed < Duration::from_secs(5), "{outcome:?}");
    let state = ProcessInfo::read(left.pid()).map(|row| row.state);
    assert_eq!(state, Some(ProcessState::Alive), "it goes on");
    left.signal(Signal::KILL).unwrap();
}

#[tokio::test]
async fn of_ten_megabytes_the_first_part_is_kept_and_the_rest_is_counted() {
    let text = "head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2; printf end";

    let outcome = run(&shell(text, LONG)).await.unwrap();

    assert!(outcome.succeeded(), "it never waited for us");
    let left_out = 10_000_000 - MAX_OUTPUT as u64;
    assert_eq!(outcome.stdout.bytes.len(), MAX_OUTPUT);
    assert_eq!(outcome.stdout.left_out, left_out + 3);
    assert_eq!(outcome.stderr.left_out, left_out);
    assert!(outcome.stdout.text().ends_with("more bytes]\n"));
}

#[tokio::test]
async fn what_is_not_text_is_kept_as_it_is() {
    let outcome = run(&shell(r"printf 'a\377\000b'", LONG)).await.unwrap();

    assert_eq!(outcome.stdout.bytes, b"a\xff\x00b");
    assert!(!outcome.stdout.is_truncated());
    assert_eq!(outcome.stdout.text(), "a\u{fffd}\0b");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    for call in [
        Invocation::words(["no-such-program"]),
        Invocation::words([""; 0]),
    ] {
        let refused = run(&HookCommand {
            call,
            timeout: LONG,
        })
        .await;

        let refused = refused.unwrap_err();
        assert_eq!(refused.op(), "start", "{refused}");
        assert!(refused.io_source().is_some(), "{refused:?}");
    }
}
