//! A small shop, made anew for each demo: sources, templates, tests, photos, a database, and work that is in no commit.
//!
//! Its bytes are the same each time. Photos are as incompressible as real ones, so that what checkpoints take is not flattered.

use crate::error::Error;
use stasis_disk::fs::atomic_write::{make_directory, replace_unsynced};
use std::fmt::Write as _;
use std::path::Path;

/// How many photos of products there are.
const PHOTOS: u64 = 36;
/// How many bytes each has.
const PHOTO_BYTES: usize = 800 << 10;

/// Modules of the shop, each with the files of [`LAYERS`].
const MODULES: [&str; 8] = [
    "cart",
    "catalog",
    "customers",
    "invoices",
    "orders",
    "payments",
    "search",
    "shipping",
];
const LAYERS: [&str; 9] = [
    "api", "cache", "errors", "events", "forms", "model", "queries", "rules", "views",
];

/// Kinds of files that belong to no module: a directory, a suffix, and how many there are.
const OTHERS: [(&str, &str, u64); 3] = [
    ("templates", "html", 24),
    ("tests", "py", 30),
    ("docs", "md", 12),
];

/// Files of the new checkout, which nobody has added to Git yet.
const DRAFTS: [&str; 7] = [
    "address", "basket", "confirm", "gift", "pay", "receipt", "voucher",
];

/// Writes what is committed, and what Git ignores.
pub(super) fn write_committed(shop: &Path) -> Result<(), Error> {
    for module in MODULES {
        for layer in LAYERS {
            let path = shop.join("src").join(module).join(format!("{layer}.py"));
            put(&path, source(module, layer).as_bytes())?;
        }
    }
    for (directory, suffix, count) in OTHERS {
        for number in 1..=count {
            let path = shop.join(directory).join(format!("{number:02}.{suffix}"));
            put(&path, page(directory, number).as_bytes())?;
        }
    }
    for number in 1..=PHOTOS {
        let path = shop.join("data/photos").join(format!("{number:03}.jpg"));
        put(&path, &noise(number, PHOTO_BYTES))?;
    }
    put(&shop.join(".gitignore"), b"data/\n.env\n")?;
    put(&shop.join(".env"), b"PAYMENT_KEY=only-on-this-machine\n")?;
    put(&shop.join("README.md"), b"# A small shop\n")?;
    put(&shop.join("Makefile"), b"test:\n\tpython -m pytest\n")?;
    put(&shop.join("setup.cfg"), b"[metadata]\nname = shop\n")
}

/// Writes the work of today: new files, and changes to some that are committed.
pub(super) fn write_uncommitted(shop: &Path) -> Result<(), Error> {
    for name in DRAFTS {
        let path = shop.join("src/checkout").join(format!("{name}.py"));
        put(&path, source("checkout", name).as_bytes())?;
    }
    for module in &MODULES[..3] {
        let path = shop.join("src").join(module).join("rules.py");
        let text = source(module, "rules")
            + "\n\ndef free_shipping(order):\n    return order.total > 50_00\n";
        put(&path, text.as_bytes())?;
    }
    Ok(())
}

/// An edit as an agent makes it, another one for each number.
pub(super) fn edit(shop: &Path, number: u32) -> Result<(), Error> {
    let module = MODULES[usize::try_from(number).unwrap_or_default() % MODULES.len()];
    let path = shop.join("src").join(module).join("views.py");
    let text = source(module, "views")
        + &format!("\n\ndef step_{number}(request):\n    return request.user\n");
    put(&path, text.as_bytes())
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(path);
    make_directory(parent)?;
    Ok(replace_unsynced(path, bytes)?)
}

fn source(module: &str, layer: &str) -> String {
    let mut text = format!("\"\"\"{layer} of {module}.\"\"\"\n\nfrom shop import db\n");
    for number in 1..=20 {
        let _ = write!(
            text,
            "\n\ndef {layer}_{number}(request):\n    rows = db.all(\"{module}\", page={number})\n    \
             return [row for row in rows if row.is_visible_to(request.user)]\n"
        );
    }
    text
}

fn page(directory: &str, number: u64) -> String {
    let mut text = format!("{directory} {number}\n");
    for line in 1..=40 {
        let _ = writeln!(
            text,
            "line {line} of {directory} {number}, as somebody wrote it"
        );
    }
    text
}

/// Bytes that do not compress: xorshift, the same for the same seed.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
