//! Names of users and groups in archives of other tars, as this host knows them.

use stasis_model::tree::acl::NamedRule;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// No list of users is read beyond this.
const LONGEST: u64 = 4 << 20;

/// The id behind a name.
pub(super) fn find(named: NamedRule<'_>) -> Option<u32> {
    static USERS: OnceLock<String> = OnceLock::new();
    static GROUPS: OnceLock<String> = OnceLock::new();
    let (name, lines) = match named {
        NamedRule::User(name) => (name, USERS.get_or_init(|| text("/etc/passwd"))),
        NamedRule::Group(name) => (name, GROUPS.get_or_init(|| text("/etc/group"))),
    };
    let mut lines = lines.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let is_it = fields.next() == Some(name);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

fn text(path: &str) -> String {
    let mut text = String::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(LONGEST).read_to_string(&mut text);
    }
    text
}
