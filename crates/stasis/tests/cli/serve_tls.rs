//! `stasis serve` over TLS: the real program, and clients that check who it is.

use crate::serve::{Served, token};
use crate::session::Session;
use std::fs::{File, Permissions};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio_rustls::rustls::{ProtocolVersion, SupportedProtocolVersion};

/// How long a test waits for what must happen.
const TIMEOUT: Duration = Duration::from_mins(1);

/// What openssl is told of a certificate that is known by itself.
const REQUEST: &str = "[req]\ndistinguished_name=dn\nx509_extensions=ext\nprompt=no\n[dn]\nCN=stasis\n\
    [ext]\nsubjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=critical,CA:FALSE\n";

/// A certificate and its key, as PEM.
struct Made {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Made {
    fn new(session: &Session) -> Self {
        let dir = tempfile::tempdir_in(session.home()).unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("request"), REQUEST).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]);
        openssl.args(["-pkeyopt", "ec_paramgen_curve:P-256"]);
        openssl.arg("-config").arg(at("request"));
        openssl.arg("-keyout").arg(at("key"));
        openssl.arg("-out").arg(at("certificate"));
        let said = openssl.output().unwrap();
        let why = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{why}");
        Self {
            certificate: std::fs::read(at("certificate")).unwrap(),
            key: std::fs::read(at("key")).unwrap(),
        }
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(&self.certificate).unwrap()
    }
}

/// The two files that a service is started with.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new(session: &Session, made: &Made) -> Self {
        let files = Self {
            certificate: session.home().join("tls.crt"),
            key: session.home().join("tls.key"),
        };
        files.write(made);
        files
    }

    fn write(&self, made: &Made) {
        replace(&self.certificate, &made.certificate);
        replace(&self.key, &made.key);
    }

    fn words(&self) -> [&str; 4] {
        let text = |path: &'static str, file: &PathBuf| (path, file.to_str().unwrap().to_owned());
        let ((cert, certificate), (key, key_file)) = (
            text("--tls-cert", &self.certificate),
            text("--tls-key", &self.key),
        );
        [cert, certificate.leak(), key, key_file.leak()]
    }
}

/// As tools that renew certificates do it: nobody reads half of a file.
fn replace(path: &Path, content: &[u8]) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content).unwrap();
    std::fs::set_permissions(&beside, Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

/// A client that has agreed on TLS, and knows these certificates.
type Client = StreamOwned<ClientConnection, TcpStream>;

fn client(served: &Served, known: &[&Made], version: &'static SupportedProtocolVersion) -> Client {
    let mut roots = RootCertStore::empty();
    for made in known {
        roots.add(made.der()).unwrap();
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut client = StreamOwned::new(connection, served.connect());
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock).unwrap();
    }
    client
}

/// Who answered, as it said itself.
fn shown(client: &Client) -> CertificateDer<'static> {
    client.conn.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

/// Asks over a connection that stays open, and returns the status.
fn get(served: &Served, client: &mut impl ReadWrite, token: &str, path: &str) -> u16 {
    let address = served.address;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    client.read_exact(&mut vec![0; length]).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// Connects until the service shows this certificate.
fn wait_for(served: &Served, known: &[&Made], wanted: &Made) {
    let started = Instant::now();
    while shown(&client(served, known, &TLS13)) != wanted.der() {
        assert!(
            started.elapsed() < TIMEOUT,
            "the certificate is the old one"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_request_is_answered_over_tls_and_plain_http_is_not() {
    let session = Session::new();
    let made = Made::new(&session);
    let files = Files::new(&session, &made);
    let token = token(&session, "acme", "read");
    let served = Served::start(&session, &files.words());

    assert_eq!(served.url, format!("https://{}", served.address));
    for version in [&TLS12, &TLS13] {
        let mut client = client(&served, &[&made], version);
        assert_eq!(client.conn.protocol_version(), Some(version.version));
        assert_eq!(get(&served, &mut client, &token, "/v1/subjects"), 200);
        assert_eq!(get(&served, &mut client, "wrong", "/v1/subjects"), 401);
    }
    let mut plain = served.connect();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    plain.write_all(head.as_bytes()).unwrap();
    let mut rest = Vec::new();
    // It is cut, or told so in the words of TLS.
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_certificate_is_exchanged_and_open_connections_go_on() {
    let session = Session::new();
    let (old, new) = (Made::new(&session), Made::new(&session));
    let files = Files::new(&session, &old);
    let served = Served::start(&session, &files.words());
    let mut open = client(&served, &[&old], &TLS13);
    assert_eq!(get(&served, &mut open, "", "/healthz"), 200);

    files.write(&new);

    wait_for(&served, &[&old, &new], &new);
    assert_eq!(get(&served, &mut open, "", "/healthz"), 200);
    assert_eq!(shown(&open), old.der());
    assert_eq!(open.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_certificate_without_its_key_is_not_used_and_the_log_says_so() {
    let session = Session::new();
    let (old, new) = (Made::new(&session), Made::new(&session));
    let files = Files::new(&session, &old);
    let log = session.home().join("log");
    let words = [
        &["--json", "serve", "--listen", "127.0.0.1:0"][..],
        &files.words(),
    ];
    let mut command = session.command(&words.concat());
    command.stderr(File::create(&log).unwrap());
    let served = Served::started(command);
    let log_has = |wanted: &str, times: usize| {
        let started = Instant::now();
        loop {
            let text = std::fs::read_to_string(&log).unwrap();
            if text.matches(wanted).count() == times {
                return;
            }
            assert!(started.elapsed() < TIMEOUT, "{wanted:?} in {text}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };

    replace(&files.certificate, &new.certificate);
    log_has("the certificate stays", 1);
    assert_eq!(shown(&client(&served, &[&old], &TLS13)), old.der());
    replace(&files.certificate, b"no certificate at all");
    log_has("has no certificate in it", 1);
    std::fs::remove_file(&files.certificate).unwrap();
    log_has("could not read", 1);
    let mut client = client(&served, &[&old], &TLS13);
    assert_eq!(get(&served, &mut client, "", "/healthz"), 200);
    // As soon as both fit again, they are used.
    files.write(&new);
    wait_for(&served, &[&old, &new], &new);
    assert_eq!(served.stop(), 0);
}

#[test]
fn whoever_never_agrees_on_tls_keeps_nobody_waiting_and_is_cut_off() {
    let session = Session::new();
    let made = Made::new(&session);
    let files = Files::new(&session, &made);
    let served = Served::start(&session, &files.words());
    // The beginning of a handshake, or nothing at all.
    let mut slow: Vec<TcpStream> = (0..50).map(|_| served.connect()).collect();
    for stream in slow.iter_mut().step_by(2) {
        stream.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    }

    let asked = Instant::now();
    let mut client = client(&served, &[&made], &TLS13);
    assert_eq!(get(&served, &mut client, "", "/healthz"), 200);
    assert!(asked.elapsed() < Duration::from_secs(8), "somebody waits");

    for mut stream in slow {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    // Neither is anybody waited for at the end.
    let _silent = served.connect();
    assert_eq!(served.stop(), 0);
}

#[test]
fn what_cannot_be_used_is_said_at_once_and_an_open_key_is_warned_of() {
    let session = Session::new();
    let (one, other) = (Made::new(&session), Made::new(&session));
    let files = Files::new(&session, &one);
    let said =
        |words: &[&str]| session.run(&[&["serve", "--listen", "127.0.0.1:0"], words].concat());

    assert_eq!(said(&files.words()[..2]).code, 2);
    replace(&files.key, &other.key);
    let wrong = said(&files.words());
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("tls.key"), "{}", wrong.err);
    replace(
        &files.key,
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let encrypted = said(&files.words());
    assert!(encrypted.err.contains("encrypted"), "{}", encrypted.err);
    let config = session.home().join("half.toml");
    std::fs::write(&config, "[serve]\ntls_cert = '/none'\n").unwrap();
    let half = said(&["--config", config.to_str().unwrap()]);
    assert!(half.err.contains("belong together"), "{}", half.err);

    // Everything from the configuration file, which stands after the command; nothing is said of requests that are not encrypted.
    files.write(&one);
    std::fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
    let text = format!(
        "[serve]\nlisten = '0.0.0.0:0'\ntls_cert = {:?}\ntls_key = {:?}\n",
        files.certificate, files.key
    );
    std::fs::write(&config, text).unwrap();
    let log = session.home().join("log");
    let mut command = session.command(&["serve", "--config", config.to_str().unwrap()]);
    command.stdout(Stdio::piped());
    command.stderr(File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(line.starts_with("Listening at https://0.0.0.0:"), "{line}");
    assert!(log.contains("everybody on this host can read"), "{log}");
    assert!(!log.contains("not encrypted"), "{log}");
}
