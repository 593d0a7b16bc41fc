//! A gate before a bucket, which lets through what a policy of `deploy/policies` allows, as AWS reads it.

use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What the policies call a bucket and what its keys begin with.
const EXAMPLE: &str = "arn:aws:s3:::stasis-example";
const FLEET: &str = "/fleet/";

#[derive(Default)]
struct Rules {
    policy: Value,
    asked: BTreeSet<String>,
    refused: Vec<String>,
}

/// The gate; the store behind it is the one that tests have, in a place of its own.
pub(super) struct Gate {
    pub(super) store: String,
    rules: Arc<Mutex<Rules>>,
}

impl Gate {
    pub(super) fn open(store: &str) -> Self {
        let behind = store.split("endpoint=http://").nth(1).unwrap();
        let behind = behind.split('&').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let place = format!("gate-{}", address.port());
        let bucket = store.strip_prefix("s3://").unwrap();
        let bucket = bucket.split('/').next().unwrap().to_owned();
        let gate = Self {
            store: format!("s3://{bucket}/{place}?endpoint=http://{address}&region=us-east-1"),
            rules: Arc::default(),
        };
        let (rules, root) = (gate.rules.clone(), format!("/{bucket}"));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (rules, root, place) = (rules.clone(), root.clone(), place.clone());
                let server = TcpStream::connect(&behind).unwrap();
                std::thread::spawn(move || {
                    pass(client, server, |line| {
                        rules.lock().unwrap().judge(line, &root, &place)
                    });
                });
            }
        });
        gate
    }

    /// From now on this is what counts.
    pub(super) fn obey(&self, policy: &str) {
        self.rules.lock().unwrap().policy = serde_json::from_str(policy).unwrap();
    }

    /// What was refused since somebody asked last.
    pub(super) fn refused(&self) -> Vec<String> {
        std::mem::take(&mut self.rules.lock().unwrap().refused)
    }

    /// Everything that was ever asked for, as policies call it.
    pub(super) fn asked(&self) -> BTreeSet<String> {
        self.rules.lock().unwrap().asked.clone()
    }
}

/// Carries requests to the server and answers back. A client waits for an answer before it asks again, so a request begins what is read.
fn pass(mut client: TcpStream, mut server: TcpStream, may: impl Fn(&str) -> bool) {
    let (mut answers, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut piece = vec![0; 1 << 16];
    while let Ok(read @ 1..) = client.read(&mut piece) {
        let head = String::from_utf8_lossy(&piece[..read]);
        let line = head.lines().next().unwrap_or_default();
        let is_copy = head.to_ascii_lowercase().contains("\r\nx-amz-copy-source:");
        let line = if is_copy {
            line.replace("PUT ", "COPY ")
        } else {
            line.to_owned()
        };
        let is_request = line.ends_with(" HTTP/1.1");
        if is_request && !may(&line) {
            let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let _ = client.write_all(answer.as_bytes());
            break;
        }
        if server.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

/// The actions that a request needs.
fn actions(method: &str, is_of_object: bool, query: &str) -> Vec<&'static str> {
    let has = |name: &str| {
        query
            .split('&')
            .any(|one| one.split('=').next() == Some(name))
    };
    match (method, is_of_object) {
        ("GET", false) if has("list-type") => vec!["s3:ListBucket"],
        ("GET" | "HEAD", true) => vec!["s3:GetObject"],
        ("COPY", true) => vec!["s3:GetObject", "s3:PutObject"],
        ("PUT", true) => vec!["s3:PutObject"],
        ("POST", true) if has("uploads") || has("uploadId") => vec!["s3:PutObject"],
        ("DELETE", true) if has("uploadId") => vec!["s3:AbortMultipartUpload"],
        ("DELETE", true) => vec!["s3:DeleteObject"],
        _ => panic!("no policy has a word for {method} ?{query}"),
    }
}

impl Rules {
    fn judge(&mut self, line: &str, root: &str, place: &str) -> bool {
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let key = path.strip_prefix(root).unwrap().trim_start_matches('/');
        // As if the place of this test were the one that the policies name.
        let key = key
            .strip_prefix(place)
            .map(|rest| rest.trim_start_matches('/'));
        let resource = match key {
            Some(key) => format!("{EXAMPLE}{FLEET}{key}"),
            None => EXAMPLE.to_owned(),
        };
        let wanted = actions(method, key.is_some(), query);
        let may = wanted.iter().all(|action| self.allows(action, &resource));
        self.asked
            .extend(wanted.iter().map(|&action| action.to_owned()));
        if !may {
            self.refused.push(format!("{wanted:?} {resource}"));
        }
        may
    }

    /// Something allows it, and nothing forbids it.
    fn allows(&self, action: &str, resource: &str) -> bool {
        let all = self.policy["Statement"].as_array().unwrap().iter();
        let mut about = all.filter(|one| {
            let is_resource = match &one["NotResource"] {
                Value::Null => is_one_of(&one["Resource"], resource),
                not => !is_one_of(not, resource),
            };
            is_one_of(&one["Action"], action) && is_resource
        });
        let effects: Vec<_> = about.by_ref().map(|one| &one["Effect"]).collect();
        effects.iter().any(|one| **one == "Allow") && effects.iter().all(|one| **one == "Allow")
    }
}

/// One text, or a list of them; a star at the end stands for anything.
fn is_one_of(words: &Value, found: &str) -> bool {
    let fits = |word: &Value| {
        let word = word.as_str().unwrap();
        match word.strip_suffix('*') {
            Some(beginning) => found.starts_with(beginning),
            None => found == word,
        }
    };
    words
        .as_array()
        .map_or_else(|| fits(words), |all| all.iter().any(fits))
}
