//! The same program against a real S3 server, and against a store that lies.

use crate::session::{Session, real_store};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

const ALICE: &str = "acme/alice@131";

#[test]
fn the_probe_passes_a_real_s3_server() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };

    let report = Session::new().json(0, &["store", "probe", &store]);

    assert_eq!(report["verdict"], "multi_writer", "{report}");
    assert!(report["checks"].as_array().unwrap().len() >= 8);
}

#[test]
fn a_store_that_ignores_conditions_is_refused_for_leases() {
    let Some(liar) = real_store("STASIS_TEST_S3_CARELESS") else {
        return;
    };
    let session = Session::on(&liar);

    let report = session.json(1, &["store", "probe"]);
    let refused = session.run(&["lease", "acquire", ALICE]);

    assert_eq!(report["verdict"], "refused", "{report}");
    assert_eq!(refused.code, 11, "{}", refused.err);
    assert!(
        refused.err.contains("is refused for more than one writer"),
        "{}",
        refused.err
    );
    assert!(
        refused
            .err
            .contains("hint: use a store that honours conditional writes"),
        "{}",
        refused.err
    );
    assert_eq!(
        session.run(&["lease", "show", ALICE]).code,
        3,
        "nothing was created"
    );
}

#[test]
fn two_hosts_share_a_lineage_through_a_bucket() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let store = store.replace("/test?", &format!("/cli-{}?", std::process::id()));
    let (one, two) = (Session::on(&store), Session::on(&store));

    let token = one.data(
        0,
        &[
            "lease", "acquire", ALICE, "--run-id", "run-1", "--host", "one",
        ],
    );
    let refused = two.json(
        4,
        &[
            "lease", "acquire", ALICE, "--run-id", "run-2", "--host", "two",
        ],
    );
    one.data(0, &["lease", "release", ALICE, "--token", &token]);
    two.data(
        0,
        &[
            "lease", "acquire", ALICE, "--run-id", "run-2", "--host", "two",
        ],
    );

    assert_eq!(refused["error"]["holder"]["holder_host"], "one");
    assert_eq!(
        one.run(&["lease", "renew", ALICE, "--token", &token]).code,
        5
    );
    assert_eq!(one.json(0, &["lease", "show", ALICE])["holder_host"], "two");
    assert!(
        two.home().join("cache/stasis/probes").exists(),
        "the probe's result is kept on the host"
    );
}

#[test]
fn what_was_found_of_one_store_is_not_believed_of_another() {
    let (Some(good), Some(careless)) = (
        real_store("STASIS_TEST_S3"),
        real_store("STASIS_TEST_S3_CARELESS"),
    ) else {
        return;
    };
    let endpoint = |store: &str| {
        store
            .split("endpoint=")
            .nth(1)
            .unwrap()
            .split('&')
            .next()
            .unwrap()
            .to_owned()
    };
    let session = Session::on("s3://stasis/shared-name");
    let acquire = |subject: &str, store: &str| {
        session
            .command(&["lease", "acquire", subject])
            .env("AWS_ENDPOINT_URL", endpoint(store))
            .output()
            .unwrap()
    };

    let on_good = acquire("acme/one@1", &good);
    let on_careless = acquire("acme/two@1", &careless);

    assert!(
        on_good.status.success(),
        "{}",
        String::from_utf8_lossy(&on_good.stderr)
    );
    assert_eq!(
        on_careless.status.code(),
        Some(11),
        "{}",
        String::from_utf8_lossy(&on_careless.stderr)
    );
}

#[test]
fn an_archive_lives_in_a_bucket_and_one_file_of_it_is_read_alone() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let session = Session::new();
    let tree = session.home().join("tree");
    std::fs::create_dir_all(tree.join("deep")).unwrap();
    let mut noise = 1_u64;
    for file in 0..40 {
        let mut bytes = Vec::new();
        while bytes.len() < 400_000 {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            bytes.extend_from_slice(&noise.to_le_bytes());
        }
        std::fs::write(tree.join(format!("deep/f{file:02}")), bytes).unwrap();
    }
    std::fs::write(tree.join("deep/hello"), "hello\n").unwrap();
    let at = |name: &str| store.replace("/test?", &format!("/{}-{name}?", std::process::id()));
    let (first, second) = (at("a.tar.zst"), at("b.tar.zst"));
    let tree = tree.to_str().unwrap();
    let out = session.home().join("out");

    let made = session.json(0, &["archive", "create", tree, &first]);
    std::fs::write(format!("{tree}/deep/hello"), "hello again\n").unwrap();
    let again = session.json(0, &["archive", "create", tree, &second, "--base", &first]);
    let verified = session.json(0, &["archive", "verify", &first]);
    let hello = session.data(0, &["archive", "cat", &first, "deep/hello"]);
    let listed = session.json(0, &["archive", "list", &second]);
    session.json(0, &["archive", "extract", &second, out.to_str().unwrap()]);

    assert_eq!(made["archive_sha256"], verified["archive_sha256"]);
    assert!(again["frames_reused"].as_u64().unwrap() > 5, "{again}");
    assert_eq!(hello, "hello");
    assert_eq!(listed["items"].as_array().unwrap().len(), 43);
    let came = std::fs::read_to_string(out.join("deep/hello")).unwrap();
    assert_eq!(came, "hello again\n");
    let absent = session.json(3, &["archive", "verify", &at("none.tar.zst")]);
    assert!(absent.to_string().contains("no archive"), "{absent}");
    let nobody = "s3://stasis/x.tar.zst?endpoint=http://127.0.0.1:1&region=us-east-1";
    assert_eq!(session.run(&["archive", "list", nobody]).code, 7);
}

/// A server in whose bucket nothing is, and which has no time: it answers 503 to each request, or to those that write.
fn overloaded(only_writes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(1000).flatten() {
            std::thread::spawn(move || refuse(stream, only_writes));
        }
    });
    format!("s3://bucket/test?endpoint=http://127.0.0.1:{port}&region=us-east-1")
}

fn refuse(mut stream: TcpStream, only_writes: bool) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(number) = line.strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (status, code) = match first.split(' ').next()? {
        "GET" | "HEAD" if only_writes && first.contains("list-type") => ("200 OK", ""),
        "GET" | "HEAD" if only_writes => ("404 Not Found", "NoSuchKey"),
        _ => ("503 Service Unavailable", "SlowDown"),
    };
    let text = match (first.starts_with("HEAD"), code) {
        (true, _) => String::new(),
        (_, "") => "<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated></ListBucketResult>".to_owned(),
        _ => format!("<Error><Code>{code}</Code><Message>no</Message></Error>"),
    };
    let length = text.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all((head + &text).as_bytes()).ok()
}

/// The first use of a store asks whether it keeps conditions; an outage is no answer to that.
#[test]
fn the_first_use_of_a_store_during_an_outage_says_that_it_cannot_be_reached() {
    let commands = [
        &["lease", "acquire", ALICE][..],
        &["repo", "save", "tree"],
        &["store", "probe"],
    ];
    std::thread::scope(|scope| {
        for (command, only_writes) in commands.iter().flat_map(|one| [(one, true), (one, false)]) {
            scope.spawn(move || {
                let session = Session::on(&overloaded(only_writes));
                std::fs::create_dir(session.home().join("tree")).unwrap();
                std::fs::write(session.home().join("tree/file"), "one").unwrap();
                let mut told = session.command(command);
                told.env("AWS_ACCESS_KEY_ID", "id")
                    .env("AWS_SECRET_ACCESS_KEY", "none");
                let said = crate::session::said(told.current_dir(session.home()).output().unwrap());

                assert_eq!(
                    said.code, 7,
                    "{command:?} {only_writes}\n{}\n{}",
                    said.out, said.err
                );
                let told = said.out + &said.err;
                assert!(
                    told.contains("cannot be reached"),
                    "{command:?} {only_writes}\n{told}"
                );
                assert!(
                    !told.contains("conditions"),
                    "{command:?} {only_writes}\n{told}"
                );
            });
        }
    });
}
