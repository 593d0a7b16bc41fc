//! Networks and ports of containers, on a real Docker engine.

use crate::container_host::{Host, REPLACE, rows, text};
use serde_json::Value;
use stasis_testkit::docker::IMAGE;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

/// Makes a network that no other test has.
fn make_network(host: &Host, name: &str, subnet: &str) {
    let words = ["network", "create", "--subnet", subnet, name];
    host.daemon.must(&words);
}

/// What somebody answers who asks for a page at a port of this host.
fn page(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.rsplit("\r\n\r\n").next()?.trim().to_owned())
}

fn assert_serves(address: &str, wanted: &str) {
    for _ in 0..200 {
        if page(address).as_deref() == Some(wanted) {
            return;
        }
        sleep(Duration::from_millis(25));
    }
    panic!("{address} does not serve `{wanted}`: {:?}", page(address));
}

fn port(restored: &Value) -> String {
    let ports = rows(&restored["ports"], "80/tcp");
    ports[0].as_str().unwrap().to_owned()
}

#[test]
fn a_copy_beside_serves_at_a_port_of_its_own_in_the_same_network() {
    let Some(host) = Host::new() else {
        return;
    };
    make_network(&host, "shopnet", "10.213.77.0/24");
    let serve = "test -e /www/index.html || echo one > /www/index.html; exec /bin/busybox httpd -f -p 80 -h /www";
    let run = ["run", "-d", "--name", "shop", "--network", "shopnet"];
    let how = ["-p", "127.0.0.1::80", "-v", "www:/www", IMAGE];
    let words = [&run[..], &how, &["/bin/sh", "-c", serve]].concat();
    host.daemon.must(&words);
    let published = host.lines("port shop 80/tcp")[0].clone();
    assert_serves(&published, "one");
    host.json(0, "container create shop");
    host.sh("shop", "echo two > /www/index.html");

    let restored = host.json(0, "container restore latest shop --port auto");

    let other = port(&restored);
    assert_ne!(other, published);
    assert_serves(&other, "one");
    assert_serves(&published, "two");
    let name = text(&restored, "container_name");
    assert_eq!(host.lines(&format!("port {name} 80/tcp"))[0], other);
    let networks = host.inspect(
        name,
        "{{range $n, $_ := .NetworkSettings.Networks}}{{$n}}{{end}}",
    );
    assert_eq!(networks, "shopnet");
    host.json(0, &format!("container restore latest shop {REPLACE}"));
    let published = host.lines("port shop 80/tcp")[0].clone();
    assert_serves(&published, "one");
    assert_serves(&other, "one");
}

#[test]
fn a_network_that_is_gone_is_named_made_on_request_and_removed_with_what_failed() {
    let Some(host) = Host::new() else {
        return;
    };
    make_network(&host, "gonenet", "10.213.78.0/24");
    let run = ["run", "-d", "--name", "shop", "--network", "gonenet"];
    let words = [&run[..], &["-v", "data:/data", IMAGE, "/bin/sleep", "1000"]].concat();
    host.daemon.must(&words);
    host.json(0, "container create shop --label works=yes");
    // What is saved now can be made again, and cannot be started.
    host.sh("shop", "/bin/busybox rm /bin/sleep");
    host.json(0, "container create shop --label works=no");
    host.daemon.must(&["rm", "-f", "shop"]);
    host.daemon.must(&["network", "rm", "gonenet"]);
    let is_there = || !host.lines("network ls -q --filter name=gonenet").is_empty();

    let refused = host.json(3, "container restore works=yes --name shop");

    let said = refused["error"].to_string();
    assert!(
        said.contains("gonenet") && said.contains("--make-networks"),
        "{said}"
    );
    let failing = "container restore works=no --name shop --make-networks";
    let words: Vec<&str> = failing.split(' ').collect();
    let output = host.output(&words);
    assert!(!output.status.success());
    assert!(host.lines("ps -aq").is_empty() && !is_there());
    host.json(0, "container restore works=yes --name shop --make-networks");
    assert_eq!(host.status("shop"), "running");
    assert!(is_there());
    host.json(0, "container cleanup");
    assert!(is_there(), "a container is in it");
}
