//! A coding agent's working tree: 50,000 small files in 10,500 directories, 444 MB, 300 symbolic links.

use super::{Planned, Variant, What, World, contents};
use crate::dice::Dice;
use anyhow::Result;
use std::fs::File;
use std::os::unix::fs::FileExt;

pub(super) const ONE_FILE: &str = "src/module0/file0.ts";

const FILES: u64 = 50_000;
const DIRECTORIES: u64 = 10_500;
const LINKS: u64 = 300;
const BYTES: u64 = 444_000_000;
const PACKAGES: u64 = 2000;
const MODULES: u64 = 300;
const EMPTY: u64 = 100;

pub(super) fn plan(world: &World) -> Vec<Planned> {
    let mut dice = world.dice("workspace");
    let modules = world.scaled(MODULES);
    let mut entries = vec![directory("src".into()), directory("node_modules".into())];
    entries.push(directory("node_modules/.bin".into()));
    let packages = world.scaled(PACKAGES);
    let mut homes = Vec::new();
    for module in 0..modules {
        homes.push(format!("src/module{module}"));
    }
    for package in 0..packages {
        let odd = if package % 97 == 5 {
            "-naïve-日本"
        } else {
            ""
        };
        let home = format!("node_modules/package{package}{odd}");
        homes.push(home.clone());
        homes.extend(["lib", "dist", "types", "lib/internal"].map(|part| format!("{home}/{part}")));
    }
    entries.extend(homes.iter().cloned().map(directory));
    for number in 0..world.scaled(EMPTY) {
        entries.push(directory(format!("src/empty{number}")));
    }
    let mut number = 0;
    while (entries.len() as u64) < world.scaled(DIRECTORIES) {
        entries.push(directory(format!("src/extra{number}")));
        number += 1;
    }
    entries.extend(files(world, &mut dice, &homes));
    entries.extend(links(world.scaled(LINKS), packages));
    entries
}

fn directory(path: String) -> Planned {
    Planned::new(path, What::Directory)
}

/// Every home gets its share of files; their sizes are spread over four powers of ten and add up to what is asked.
fn files(world: &World, dice: &mut Dice, homes: &[String]) -> Vec<Planned> {
    let count = world.scaled(FILES);
    let raw: Vec<u64> = (0..count)
        .map(|_| {
            let power = dice.below(10);
            64 + dice.below(256 << power)
        })
        .collect();
    let all: u64 = raw.iter().sum();
    let wanted = u128::from(world.scaled(BYTES));
    let sizes = raw.iter().map(|size| {
        let size = u128::from(*size) * wanted / u128::from(all);
        u64::try_from(size).unwrap_or_default()
    });
    sizes
        .zip(0_u64..)
        .map(|(size, number)| {
            let home = number % homes.len() as u64;
            let round = number / homes.len() as u64;
            let home = &homes[usize::try_from(home).unwrap_or_default()];
            one_file(home, round, size)
        })
        .collect()
}

fn one_file(home: &str, round: u64, size: u64) -> Planned {
    let is_package = home.starts_with("node_modules/") && home.matches('/').count() == 1;
    let (name, what) = match round {
        0 if is_package => ("package.json".to_owned(), What::Json(size)),
        1 if is_package => ("LICENSE".to_owned(), What::Common(size.min(1100))),
        2 if is_package => (
            "README.md".to_owned(),
            What::Prose(size + size.saturating_sub(1100)),
        ),
        _ if home.ends_with("/dist") && round == 3 => ("wasm.bin".to_owned(), What::Mixed(size)),
        _ if round == 4 && size.is_multiple_of(40) => {
            ("Übersicht ☂.md".to_owned(), What::Prose(size))
        }
        _ => (format!("file{round}.ts"), What::Source(size)),
    };
    let mut planned = Planned::new(format!("{home}/{name}"), what);
    if size.is_multiple_of(25) {
        planned.mode = 0o755;
    }
    planned
}

/// Tools in `.bin`, and all that links can be: loops, absolute, dangling, up and down.
fn links(count: u64, packages: u64) -> Vec<Planned> {
    let link = |number: u64| {
        let (name, target) = match number % 10 {
            0 => (format!("src/loop{number}"), format!("loop{number}")),
            1 => (format!("src/absolute{number}"), "/etc/hostname".to_owned()),
            2 => (
                format!("src/dangling{number}"),
                "../no/such/thing".to_owned(),
            ),
            3 => (format!("src/module0/up{number}"), "..".to_owned()),
            _ => (
                format!("node_modules/.bin/tool{number}"),
                format!("../package{}/lib/file0.ts", number % packages),
            ),
        };
        Planned::new(name, What::Link(target))
    };
    (0..count).map(link).collect()
}

/// An agent's step: 50 files edited, 20 added, 10 deleted.
pub(super) fn change(world: &World, mut variant: Variant) -> Result<Variant> {
    let plan = plan(world);
    let is_source = |one: &&Planned| matches!(one.what, What::Source(_)) && one.path != ONE_FILE;
    let sources: Vec<&Planned> = plan.iter().filter(is_source).collect();
    let step = sources.len() / 60;
    let picked: Vec<&str> = (0..60).map(|pick| &*sources[pick * step].path).collect();
    let (edited, deleted) = picked.split_at(50);
    for path in edited {
        let file = File::options().write(true).open(variant.replace(path)?)?;
        let edit = contents::bytes(world, &format!("edit {path}"), &What::Source(300));
        file.write_all_at(&edit, file.metadata()?.len() / 2)?;
    }
    for path in deleted {
        variant.delete(path)?;
    }
    for number in 0..20 {
        let module = number % world.scaled(MODULES);
        let path = format!("src/module{module}/new{number}.ts");
        let bytes = contents::bytes(world, &path, &What::Source(4000 + 100 * number));
        variant.add(&path, &bytes)?;
    }
    Ok(variant)
}
