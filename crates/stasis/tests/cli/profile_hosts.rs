//! Two hosts that want the same profile.

use crate::profile_chromium::store;
use crate::session::{Session, said};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A browser that waits for a sign, and then signs the profile.
const BROWSER: &str = "while [ ! -e \"$1\" ]; do sleep 0.02; done; mkdir -p \"$0/Default\"; \
                       printf 131.0.6778.85 > \"$0/Last Version\"; echo \"$2\" >> \"$0/Default/signed\"";

/// Starts a run on a host's own directory, which goes on until there is a file `go` in its home.
fn start(session: &Session, run_id: &str) -> Child {
    let (dir, go) = (session.home().join("p"), session.home().join("go"));
    let mut command = session.command(&["--json", "profile", "run", "acme/alice@131"]);
    command.args(["--run-id", run_id, "--host", run_id, "--dir"]);
    command.arg(dir).args(["--", "sh", "-c", BROWSER, "{dir}"]);
    command.arg(go).arg(run_id);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap()
}

/// How a run ended, and its report.
fn report(child: Child) -> (i32, Value) {
    let said = said(child.wait_with_output().unwrap());
    let report = serde_json::from_str(&said.out);
    (said.code, report.unwrap_or_else(|_| panic!("{}", said.err)))
}

/// Waits until one of two has ended, and says which.
fn first_to_end(runs: &mut [Child; 2]) -> usize {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(30) {
        for (number, run) in runs.iter_mut().enumerate() {
            if run.try_wait().unwrap().is_some() {
                return number;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("both run")
}

fn signed(home: &Path) -> String {
    std::fs::read_to_string(home.join("p/Default/signed")).unwrap_or_default()
}

#[test]
fn of_two_hosts_racing_on_one_profile_one_runs_the_other_hears_who_and_then_goes_on_from_there() {
    let shared = tempfile::tempdir().unwrap();
    let store = store(shared.path(), "race");
    let hosts = [Session::on(&store), Session::on(&store)];
    let names = ["one", "two"];
    let mut runs = [0, 1].map(|host| start(&hosts[host], names[host]));

    let refused = first_to_end(&mut runs);
    let holder = 1 - refused;
    assert!(
        runs[holder].try_wait().unwrap().is_none(),
        "one of them runs"
    );
    std::fs::write(hosts[holder].home().join("go"), "").unwrap();
    let [first, second] = runs.map(report);
    let (refusal, ran) = if refused == 0 {
        (first, second)
    } else {
        (second, first)
    };

    let error = &refusal.1["error"];
    assert_eq!((refusal.0, &error["kind"]), (104, &"conflict".into()));
    assert_eq!(error["holder"]["holder_run_id"], names[holder], "{error}");
    assert_eq!(error["holder"]["holder_host"], names[holder], "{error}");
    assert_eq!(signed(hosts[refused].home()), "", "its browser never ran");
    assert_eq!((ran.0, &ran.1["save_outcome"]), (0, &"captured".into()));
    std::fs::write(hosts[refused].home().join("go"), "").unwrap();
    let (code, later) = report(start(&hosts[refused], names[refused]));
    assert_eq!((code, &later["load"]["outcome"]), (0, &"success".into()));
    assert_eq!(later["load"]["sha256"], ran.1["save"]["sha256"]);
    assert_eq!(later["save"]["predecessor_sha256"], ran.1["save"]["sha256"]);
    let both = format!("{}\n{}\n", names[holder], names[refused]);
    assert_eq!(signed(hosts[refused].home()), both);
}
