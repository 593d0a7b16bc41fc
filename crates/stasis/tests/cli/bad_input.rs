//! Everything that can be wrong with what we are given: each has its own clear error, and nothing is lost or created.

use crate::session::{Session, real_store};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const ALICE: &str = "acme/alice@131";

#[test]
fn ids_that_could_step_outside_are_refused_by_name() {
    let session = Session::new();
    let long = format!("{}/alice@131", "a".repeat(64));
    let cases = [
        ("../alice@131", "the tenant contains `.` at position 0"),
        ("acme/..@131", "the profile contains `.` at position 0"),
        ("acme/a..b@131", "the profile contains `..` at position 1"),
        ("acme/a/b@131", "the profile contains `/` at position 1"),
        ("acme/@131", "the profile is empty"),
        (
            "acme/a\u{7}b@131",
            "the profile contains `\\u{7}` at position 1",
        ),
        ("acme/a b@131", "the profile contains ` ` at position 1"),
        (
            "acme/alice",
            "is not of the form <tenant>/<profile>@<chrome-major>",
        ),
        (
            "acme/alice@latest",
            "the chrome major `latest` is not a whole number between 1 and 9999",
        ),
        (
            &long,
            "the tenant is 64 characters long; at most 63 are allowed",
        ),
    ];

    for (subject, words) in cases {
        let said = session.run(&["lease", "acquire", subject]);
        assert_eq!(said.code, 2, "{subject:?}");
        assert!(said.err.contains(words), "{subject:?}: {}", said.err);
    }
    assert!(!session.object("snapshots").exists(), "nothing was created");
}

#[test]
fn documents_that_cannot_be_understood_are_refused_and_never_overwritten() {
    let session = Session::new();
    session.data(0, &["lease", "acquire", ALICE, "--ttl", "1ms"]);
    let good =
        std::fs::read_to_string(session.object("snapshots/acme/alice/131/lock.json")).unwrap();
    let cases: [(&str, Vec<u8>, &str); 6] = [
        (
            "truncated",
            good.as_bytes()[..good.len() / 2].to_vec(),
            "is not a JSON document with a version",
        ),
        ("empty", Vec::new(), "is not a JSON document with a version"),
        (
            "version 0",
            good.replace("\"version\": 1", "\"version\": 0")
                .into_bytes(),
            "has version 0",
        ),
        (
            "version 9",
            good.replace("\"version\": 1", "\"version\": 9")
                .into_bytes(),
            "has version 9",
        ),
        (
            "nonsense",
            b"{\"version\": 1, \"holder_run_id\": 3}".to_vec(),
            "does not say what such a document must say",
        ),
        (
            "200 MB",
            vec![b' '; 200_000_000],
            "is 200000000 bytes large",
        ),
    ];

    for document in ["lock.json", "latest.json"] {
        let path = session.object(&format!("snapshots/acme/alice/131/{document}"));
        let sound = std::fs::read(&path).unwrap();
        for (name, bytes, words) in &cases {
            std::fs::write(&path, bytes).unwrap();
            let said = session.run(&["lease", "acquire", ALICE]);
            assert_eq!(said.code, 9, "{document} {name}: {}", said.err);
            assert!(said.err.contains(words), "{document} {name}: {}", said.err);
            assert!(
                said.err.contains("hint: nothing was overwritten"),
                "{document} {name}: {}",
                said.err
            );
            assert!(
                std::fs::read(&path).unwrap() == *bytes,
                "{document} {name} was overwritten"
            );
        }
        std::fs::write(&path, sound).unwrap();
    }
    session.data(0, &["lease", "acquire", ALICE]);
}

#[test]
fn a_damaged_lock_is_left_to_the_operator_by_the_reaper() {
    let session = Session::new();
    session.data(0, &["lease", "acquire", ALICE, "--ttl", "1ms"]);
    session.data(
        0,
        &[
            "lease",
            "acquire",
            "acme/bob@131",
            "--run-id",
            "dead",
            "--ttl",
            "1ms",
        ],
    );
    std::fs::write(session.object("snapshots/acme/alice/131/lock.json"), "{").unwrap();
    std::thread::sleep(Duration::from_millis(20));

    let reaped = session.json(9, &["lease", "reap", "--grace", "1ms"]);

    assert_eq!(
        reaped["left_alone"][0]["subject"],
        format!("profile:{ALICE}")
    );
    assert_eq!(reaped["evicted"][0]["holder_run_id"], "dead");
    assert_eq!(
        std::fs::read_to_string(session.object("snapshots/acme/alice/131/lock.json")).unwrap(),
        "{"
    );
}

#[test]
fn a_pointer_that_leads_to_another_tenant_is_refused() {
    let session = Session::new();
    session.data(0, &["lease", "acquire", ALICE, "--ttl", "1ms"]);
    let path = session.object("snapshots/acme/alice/131/latest.json");
    let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let mut pointer: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    pointer["active_sha256"] = sha.into();
    pointer["active_manifest_sha256"] = sha.into();
    pointer["active_sha256_prefix"] = "ba7816bf8f01".into();
    pointer["active_archive_key"] = "snapshots/other/alice/131/profile-ba7816bf8f01.tar.zst".into();
    pointer["active_manifest_key"] =
        "snapshots/acme/alice/131/profile-ba7816bf8f01.manifest.json".into();
    std::fs::write(&path, pointer.to_string()).unwrap();

    let said = session.run(&["lease", "acquire", ALICE]);

    assert_eq!(said.code, 9, "{}", said.err);
    assert!(
        said.err.contains("which is not a snapshot of its lineage"),
        "{}",
        said.err
    );
}

#[test]
fn a_store_url_says_what_is_wrong_with_it() {
    let session = Session::new();
    let cases = [
        (
            "~/store",
            "is a path that means another place elsewhere; write the whole one",
        ),
        (
            "ftp://host/x",
            "allowed are file:///absolute/path, memory: and s3://bucket/prefix",
        ),
        ("file://host/x", "a file URL is file:///absolute/path"),
        ("s3://", "is no bucket name"),
        ("s3://key:secret@bucket/x", "contains a user or password"),
        ("s3://bucket/x?endpint=http://127.0.0.1:1", "endpint"),
        (
            "s3://bucket/x?endpoint=http://example.com",
            "is not on this machine and not https",
        ),
    ];

    for (url, words) in cases {
        let said = session.run(&["--store", url, "lease", "show", ALICE]);
        assert_eq!(said.code, 2, "{url}: {}", said.err);
        assert!(said.err.contains(words), "{url}: {}", said.err);
        assert!(
            !said.err.contains("secret@"),
            "a secret was shown: {}",
            said.err
        );
    }
}

#[test]
fn a_misspelt_configuration_is_not_ignored() {
    let session = Session::new();
    let path = session.home().join("c.toml");
    std::fs::write(&path, "stroe = \"memory:\"\n").unwrap();

    let said = session.run(&["--config", path.to_str().unwrap(), "lease", "show", ALICE]);

    assert_eq!(said.code, 2);
    assert!(said.err.contains("stroe"), "{}", said.err);
}

#[test]
fn a_bucket_without_credentials_is_refused_before_anything_is_sent() {
    let session = Session::on("s3://bucket/x?endpoint=http://127.0.0.1:9&region=us-east-1");

    let output = session
        .command(&["lease", "show", ALICE])
        .env_remove("AWS_ACCESS_KEY_ID")
        .output()
        .unwrap();

    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("there are no credentials for the store"),
        "{said}"
    );
    assert!(said.contains("hint: set AWS_ACCESS_KEY_ID"), "{said}");
}

#[test]
fn credentials_are_also_found_in_a_profile_file() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let session = Session::on(&store);
    let file = session.home().join("credentials");
    let keys = "[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n\
                [ci]\naws_access_key_id = testkey\naws_secret_access_key = testsecret\n";
    std::fs::write(&file, keys).unwrap();

    let mut command = session.command(&["tenant", "policy", "show", "acme"]);
    command
        .env_remove("AWS_ACCESS_KEY_ID")
        .env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("AWS_SHARED_CREDENTIALS_FILE", &file);
    let right = command.env("AWS_PROFILE", "ci").output().unwrap();
    let wrong = command.env("AWS_PROFILE", "default").output().unwrap();

    assert!(
        right.status.success(),
        "{}",
        String::from_utf8_lossy(&right.stderr)
    );
    assert_eq!(
        wrong.status.code(),
        Some(8),
        "{}",
        String::from_utf8_lossy(&wrong.stderr)
    );
}

#[test]
fn a_bucket_that_does_not_exist_and_wrong_keys_are_told_apart() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let absent = Session::on(&store.replace("s3://stasis/", "s3://no-such-bucket/"));
    let denied = Session::on(&store);

    let absent = absent.run(&["lease", "acquire", ALICE]);
    let denied = denied
        .command(&["lease", "acquire", ALICE])
        .env("AWS_SECRET_ACCESS_KEY", "wrong")
        .output()
        .unwrap();

    assert_eq!(absent.code, 3, "{}", absent.err);
    assert!(
        absent.err.contains("a bucket must be created first"),
        "{}",
        absent.err
    );
    let words = String::from_utf8(denied.stderr).unwrap();
    assert_eq!(denied.status.code(), Some(8), "{words}");
    assert!(
        words.contains("hint: check credentials and permissions"),
        "{words}"
    );
}

/// A store that treats every connection the same bad way; lives as long as the test process.
fn bad_server(treat: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(treat));
    format!("s3://bucket/x?endpoint=http://127.0.0.1:{port}&region=us-east-1")
}

fn assert_unreachable(store: &str) {
    let session = Session::on(store);
    let started = Instant::now();
    let mut command = session.command(&["lease", "acquire", ALICE]);
    command
        .env("AWS_ACCESS_KEY_ID", "k")
        .env("AWS_SECRET_ACCESS_KEY", "very-secret-key");

    let output = command.output().unwrap();

    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{words}");
    assert!(
        words.contains("hint: check the address, and the network or the disk behind it"),
        "{words}"
    );
    assert!(
        !words.contains("very-secret-key"),
        "a secret was shown: {words}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(100),
        "an outage must be reported in bounded time"
    );
}

#[test]
fn an_endpoint_that_refuses_connections_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);

    assert_unreachable(&format!(
        "s3://bucket/x?endpoint=http://127.0.0.1:{port}&region=us-east-1"
    ));
}

#[test]
fn an_endpoint_that_never_answers_is_unreachable() {
    let silent = bad_server(|mut stream| {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
    });

    assert_unreachable(&silent);
}

#[test]
fn an_endpoint_that_cuts_its_answers_is_unreachable() {
    let cutting = bad_server(|mut stream| {
        let mut request = [0; 1024];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nETag: \"x\"\r\n\r\n{\"version\": 1,",
        );
    });

    assert_unreachable(&cutting);
}

#[test]
fn an_operation_nobody_recorded_is_not_found() {
    let session = Session::new();
    session.data(0, &["lease", "acquire", ALICE]);

    let said = session.run(&["operation", "show", "5b1cbb4e-6a50-4c93-9be6-0a3ad5cf29de"]);

    assert_eq!(said.code, 3);
    assert!(said.err.contains("no record of operation"), "{}", said.err);
    assert_eq!(session.run(&["operation", "show", "not-an-id"]).code, 2);
}

#[test]
fn a_store_that_is_not_there_is_not_an_empty_one() {
    let session = Session::new();
    let nowhere = session.home().join("not-mounted");
    let store = format!("file://{}", nowhere.display());

    for arguments in [
        &["lease", "show", ALICE][..],
        &["lease", "reap"],
        &["events"],
        &["tenant", "policy", "show", "acme"],
    ] {
        let mut asked = vec!["--store", &store];
        asked.extend(arguments);
        let said = session.run(&asked);
        assert_eq!(said.code, 3, "{arguments:?}: {}", said.err);
        assert!(
            said.err.contains("the store does not exist"),
            "{arguments:?}: {}",
            said.err
        );
        assert!(!nowhere.exists(), "{arguments:?} made a store");
    }
}

#[test]
fn a_directory_that_is_not_there_is_said_in_one_line() {
    let session = Session::new();
    let (nope, other) = (session.home().join("nope"), session.home().join("other"));
    let (nope, other) = (nope.to_str().unwrap(), other.to_str().unwrap());
    let home = session.home().join("home");
    std::fs::create_dir(&home).unwrap();
    let home = home.to_str().unwrap();
    let cases: [&[&str]; 7] = [
        &["workspace", "init", home, "--system", nope],
        &["save", nope],
        &["project", "--project", nope, "init"],
        &["workspace", "init", nope],
        &["workspace", "--workspace", nope, "list"],
        &["archive", "create", nope, other],
        &["clone", nope, other],
    ];

    for arguments in cases {
        let said = session.run(arguments);
        assert_eq!(said.code, 3, "{arguments:?}: {}", said.err);
        let line = format!("error: {nope}: no such directory\n");
        assert_eq!(said.err, line, "{arguments:?}");
    }
}

#[test]
fn nothing_from_a_document_reaches_the_terminal_unescaped() {
    let session = Session::new();
    session.data(0, &["lease", "acquire", ALICE]);
    let path = session.object("snapshots/acme/alice/131/lock.json");
    let lock = std::fs::read_to_string(&path).unwrap();
    let hostile = [
        lock.replace("\"held\"", "\"\\u001b[31mheld\\u001b[2J\""),
        lock.replace("\"holder_run_id\": \"", "\"holder_run_id\": \"\\u202e"),
    ];

    for document in hostile {
        std::fs::write(&path, &document).unwrap();
        let said = session.run(&["lease", "show", ALICE]);
        assert_eq!(said.code, 9, "{}", said.err);
        let visible = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(said.err.chars().all(visible), "{:?}", said.err);
    }
}

#[test]
fn a_time_that_never_ends_is_refused() {
    let session = Session::new();

    for arguments in [
        &["lease", "acquire", ALICE, "--ttl", "8d"][..],
        &["lease", "acquire", ALICE, "--ttl", "18446744073709551615ms"],
        &[
            "tenant",
            "policy",
            "set",
            "acme",
            "lease_ttl_s=18446744073709551615",
        ],
    ] {
        let said = session.run(arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {}", said.err);
        assert!(said.err.contains("7 days"), "{arguments:?}: {}", said.err);
    }
}

#[test]
fn a_token_that_cannot_be_printed_is_given_back() {
    let session = Session::new();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();

    let output = session
        .command(&["lease", "acquire", ALICE])
        .stdout(full)
        .output()
        .unwrap();

    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("so the lease was given back"), "{said}");
    assert_eq!(session.json(0, &["lease", "show", ALICE])["state"], "free");
}

#[test]
fn one_tenants_damaged_policy_keeps_nobody_else_from_being_reaped() {
    let session = Session::new();
    for subject in ["aa/x@1", "bb/x@1", "cc/x@1"] {
        session.data(
            0,
            &[
                "lease", "acquire", subject, "--run-id", "dead", "--ttl", "1ms",
            ],
        );
    }
    for tenant in ["aa", "bb", "cc"] {
        session.data(0, &["tenant", "policy", "set", tenant, "grace_s=0"]);
    }
    std::fs::write(session.object("tenants/bb/policy.json"), "{\"version\": 2}").unwrap();
    std::thread::sleep(Duration::from_millis(20));

    let reaped = session.json(9, &["lease", "reap"]);

    let evicted: Vec<&str> = reaped["evicted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| lock["subject"].as_str().unwrap())
        .collect();
    assert_eq!(evicted, ["profile:aa/x@1", "profile:cc/x@1"]);
    assert_eq!(reaped["left_alone"][0]["subject"], "profile:bb/x@1");
    assert_eq!(session.run(&["lease", "reap", "aa/typo@1"]).code, 3);
}

#[test]
fn whoever_asks_for_json_gets_mistakes_as_json_too() {
    let session = Session::new();

    let mistake = session.json(2, &["lease", "show", "bad"]);
    let typo = session.json(
        3,
        &[
            "--store",
            "memory:",
            "lease",
            "renew",
            "acme/typo@1",
            "--token",
            STRANGER,
        ],
    );

    assert!(
        mistake["error"]["message"]
            .as_str()
            .unwrap()
            .contains("is not of the form"),
        "{mistake}"
    );
    assert_eq!(typo["error"]["kind"], "notfound", "{typo}");
}

const STRANGER: &str = "1.00000000-0000-4000-8000-000000000000";

#[test]
fn a_stored_policy_that_cannot_be_used_can_be_looked_at_and_mended() {
    let session = Session::new();
    session.data(0, &["tenant", "policy", "set", "acme", "grace_s=30"]);
    let path = session.object("tenants/acme/policy.json");
    let policy = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        policy.replace("\"lease_ttl_s\": 300", "\"lease_ttl_s\": 9999999"),
    )
    .unwrap();

    let refused = session.run(&["lease", "acquire", ALICE]);

    assert_eq!(refused.code, 11, "{}", refused.err);
    assert!(
        refused
            .err
            .contains("the stored policy of tenant `acme` cannot be used"),
        "{}",
        refused.err
    );
    assert_eq!(
        session.json(0, &["tenant", "policy", "show", "acme"])["lease_ttl_s"],
        9_999_999
    );
    session.data(0, &["tenant", "policy", "set", "acme", "lease_ttl_s=300"]);
    session.data(0, &["lease", "acquire", ALICE]);
}

#[test]
fn a_mistake_on_the_command_line_is_one_plain_sentence_in_json() {
    let session = Session::new();
    let mistakes: [(&[&str], &str, &str); 3] = [
        (
            &["--json", "--color", "always", "save", "--lable", "x"],
            "unexpected argument '--lable' found",
            "a similar argument exists: '--label'; usage: stasis save ",
        ),
        (
            &["clone", "--json"],
            "the following required arguments were not provided: <SRC>, <DST>",
            "usage: stasis clone ",
        ),
        (
            &["changes", "--json"],
            "unrecognized subcommand 'changes'",
            "`stasis diff` shows what changed ",
        ),
    ];

    for (words, message, hint) in mistakes {
        let said = session.run(words);
        let document: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        crate::session::assert_published(&document);

        assert_eq!((said.code, said.err.as_str()), (2, ""), "{words:?}");
        assert_eq!(document["error"]["message"], message, "{document:#}");
        let told = document["error"]["hint"].as_str().unwrap();
        assert!(told.starts_with(hint), "{told}");
        assert!(!told.contains(['\n', '\u{1b}']), "{told:?}");
    }
}
