//! A browser's profile: about 630 MB in 4,000 files and 650 directories.

use super::{Planned, Variant, What, World, contents};
use anyhow::Result;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

pub(super) const ONE_FILE: &str = "Default/Preferences";

const FILES: u64 = 4000;
const DIRECTORIES: u64 = 650;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The databases, with their sizes in MiB.
const DATABASES: [(&str, u64); 10] = [
    ("Default/History", 102),
    ("Default/Favicons", 24),
    ("Default/Network/Cookies", 6),
    ("Default/Web Data", 12),
    ("Default/Login Data", 1),
    ("Default/Top Sites", 1),
    ("Default/Shortcuts", 1),
    ("Default/Network Action Predictor", 5),
    ("Default/Media History", 6),
    ("Default/Affiliation Database", 4),
];

const SETTINGS: [(&str, u64); 6] = [
    ("Default/Preferences", 400),
    ("Default/Secure Preferences", 700),
    ("Default/Bookmarks", 1800),
    ("Default/TransportSecurity", 200),
    ("Local State", 900),
    ("Default/Network/Network Persistent State", 500),
];

/// The plan while it grows: directories are made as they are needed.
struct Plan<'a> {
    world: &'a World,
    directories: BTreeSet<String>,
    entries: Vec<Planned>,
    files: u64,
}

impl Plan<'_> {
    fn directory(&mut self, path: &str) {
        if path.is_empty() || self.directories.contains(path) {
            return;
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above);
        }
        self.directories.insert(path.to_owned());
        let mut planned = Planned::new(path, What::Directory);
        planned.mode = 0o700;
        self.entries.push(planned);
    }

    fn file(&mut self, path: String, what: What) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above);
        }
        let mut planned = Planned::new(path, what);
        planned.mode = 0o600;
        self.entries.push(planned);
        self.files += 1;
    }

    fn databases(&mut self) {
        for (path, mib) in DATABASES {
            let size = self.world.scaled(mib * MIB);
            self.file(path.to_owned(), What::Sqlite(size));
            self.file(format!("{path}-journal"), What::Noise(0));
        }
        for (path, kib) in SETTINGS {
            let size = self.world.scaled(kib * KIB).max(4 * KIB);
            self.file(path.to_owned(), What::Json(size));
        }
    }

    fn stores(&mut self) {
        let fixed = [
            "Local Storage/leveldb",
            "Session Storage",
            "Sync Data/LevelDB",
        ];
        let sites = (0..self.world.scaled(40))
            .map(|site| format!("IndexedDB/https_site{site}.example_0.indexeddb.leveldb"));
        let stores: Vec<String> = fixed.into_iter().map(str::to_owned).chain(sites).collect();
        for store in stores {
            let at = |name: &str| format!("Default/{store}/{name}");
            let mut dice = self.world.dice(&store);
            self.file(at("CURRENT"), What::Prose(16));
            self.file(at("LOCK"), What::Noise(0));
            self.file(at("LOG"), What::Prose(300 + dice.below(2000)));
            self.file(at("MANIFEST-000001"), What::Mixed(200 + dice.below(4000)));
            self.file(
                at("000007.log"),
                What::LevelLog(400 * KIB + dice.below(800 * KIB)),
            );
            for table in ["000003.ldb", "000004.ldb", "000005.ldb"] {
                self.file(
                    at(table),
                    What::LevelTable(600 * KIB + dice.below(900 * KIB)),
                );
            }
        }
    }

    fn caches(&mut self) {
        let mut dice = self.world.dice("caches");
        for number in 0..self.world.scaled(1400) {
            let size = 16 * KIB + dice.below(48 * KIB);
            self.file(cache_entry(number), What::Noise(size));
        }
        for _ in 0..self.world.scaled(900) {
            let path = format!("Default/Code Cache/js/{:016x}_0", dice.roll());
            self.file(path, What::Mixed(20 * KIB + dice.below(160 * KIB)));
        }
        for _ in 0..self.world.scaled(100) {
            let store = format!("{:040x}/{:032x}", dice.roll(), dice.roll());
            let store = format!("Default/Service Worker/CacheStorage/{store}");
            self.file(format!("{store}/index"), What::Mixed(300));
            for _ in 0..3 {
                let size = 60 * KIB + dice.below(360 * KIB);
                self.file(
                    format!("{store}/{:016x}_0", dice.roll()),
                    What::Source(size),
                );
            }
        }
        for cache in ["Default/GPUCache", "GrShaderCache", "ShaderCache"] {
            for (name, kib) in [
                ("index", 256),
                ("data_0", 8),
                ("data_1", 264),
                ("data_3", 8192),
            ] {
                let size = self.world.scaled(kib * KIB).max(4 * KIB);
                self.file(format!("{cache}/{name}"), What::Mixed(size));
            }
        }
    }

    fn extensions(&mut self) {
        let mut dice = self.world.dice("extensions");
        for number in 0..self.world.scaled(11) {
            let home = format!("Default/Extensions/extension{number:022}/1.{number}.0_0");
            self.file(format!("{home}/manifest.json"), What::Json(2 * KIB));
            for locale in 0..24 {
                let path = format!("{home}/_locales/l{locale:02}/messages.json");
                self.file(path, What::Json(2 * KIB + dice.below(30 * KIB)));
            }
            for script in 0..30 {
                let path = format!("{home}/scripts/{script:02}.js");
                self.file(path, What::Source(4 * KIB + dice.below(120 * KIB)));
            }
        }
    }

    /// Many small things of which nobody knows what they are.
    fn odds_and_ends(&mut self) {
        let (files, directories) = (self.world.scaled(FILES), self.world.scaled(DIRECTORIES));
        let mut dice = self.world.dice("odds");
        let mut number = 0;
        while (self.directories.len() as u64) < directories {
            self.directory(&format!(
                "Default/File System/{:03}/t/{:02}",
                number / 8,
                number % 8
            ));
            number += 1;
        }
        let mut number = 0;
        while self.files < files {
            let path = format!("Default/blob_storage/{number:05}");
            self.file(path, What::Prose(100 + dice.below(8 * KIB)));
            number += 1;
        }
    }
}

fn cache_entry(number: u64) -> String {
    format!("Default/Cache/Cache_Data/f_{number:06x}")
}

pub(super) fn plan(world: &World) -> Vec<Planned> {
    let mut plan = Plan {
        world,
        directories: BTreeSet::new(),
        entries: Vec::new(),
        files: 0,
    };
    plan.databases();
    plan.stores();
    plan.caches();
    plan.extensions();
    plan.odds_and_ends();
    plan.entries
}

/// A run of the browser: rows added and touched, settings written anew, logs longer, caches with new entries.
pub(super) fn change(world: &World, mut variant: Variant) -> Result<Variant> {
    for (path, every) in [
        ("Default/History", 650),
        ("Default/Network/Cookies", 40),
        ("Default/Favicons", 600),
    ] {
        let prepared = variant.replace(path)?;
        contents::use_sqlite(world, &prepared, every)?;
    }
    for (path, kib) in SETTINGS {
        let size = world.scaled(kib * KIB).max(4 * KIB);
        let prepared = variant.replace(path)?;
        fs::write(prepared, contents::bytes(world, "after", &What::Json(size)))?;
    }
    for site in 0..world.scaled(6) {
        let store = format!("Default/IndexedDB/https_site{site}.example_0.indexeddb.leveldb");
        let log = variant.replace(&format!("{store}/000007.log"))?;
        let more = contents::bytes(world, &store, &What::LevelLog(200 * KIB));
        let file = File::options().write(true).open(log)?;
        file.write_all_at(&more, file.metadata()?.len())?;
        let table = contents::bytes(world, &format!("{store}+"), &What::LevelTable(500 * KIB));
        variant.add(&format!("{store}/000009.ldb"), &table)?;
    }
    for number in 0..world.scaled(70) {
        let path = cache_entry(1_000_000 + number);
        let bytes = contents::bytes(world, &path, &What::Noise(60 * KIB));
        variant.add(&path, &bytes)?;
        if number % 2 == 0 {
            variant.delete(&cache_entry(number))?;
        }
    }
    touch_pages(world, &mut variant, "Default/GPUCache/data_3")?;
    Ok(variant)
}

/// Every 33rd page of a file that is not a database is another.
fn touch_pages(world: &World, variant: &mut Variant, path: &str) -> Result<()> {
    let prepared = variant.replace(path)?;
    let file = File::options().write(true).open(prepared)?;
    let pages = file.metadata()?.len() / 4096;
    let mut dice = world.dice("touched pages");
    for _ in 0..pages / 33 {
        file.write_all_at(&dice.noise(4096), dice.below(pages) * 4096)?;
    }
    Ok(())
}
