//! Which keys a LevelDB has, of those that begin in a certain way, and their values: read as its own program would, changing
//! nothing.
//!
//! Every write has a sequence number, wherever it stands; the highest one of a key decides whether it is alive.

use super::block;
use super::log::{LogRecord, Records};
use super::table::SortedTable;
use super::{End, Files, Findings, LevelDbSettings, LevelDbTrouble, Verdict, batch, damage, open};
use std::collections::{BTreeMap, BTreeSet};

/// More keys than this are not looked at.
const MOST_KEYS: usize = 100_000;
/// A longer key is none that anybody asks for.
const LONGEST_KEY: usize = 4096;

/// What all values together may have.
const MOST_BYTES: usize = 64 << 20;

/// Keys with the number of their last write, and what it left, if anything.
type FoundRecord = BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>;

/// The live keys that begin with `prefix`; else why they cannot be told.
pub fn keys(
    files: &dyn Files,
    prefix: &[u8],
    settings: &LevelDbSettings<'_>,
) -> Result<BTreeSet<Vec<u8>>, String> {
    let found = find(files, settings, |key, _| {
        key.starts_with(prefix).then(Vec::new)
    })?;
    Ok(found.into_keys().collect())
}

/// The live keys that begin with `prefix`, with their values; else why they cannot be told.
pub fn entries(
    files: &dyn Files,
    prefix: &[u8],
    settings: &LevelDbSettings<'_>,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    find(files, settings, |key, value| {
        key.starts_with(prefix).then(|| value.to_vec())
    })
}

/// The live entries of which `wanted` keeps something.
fn find(
    files: &dyn Files,
    settings: &LevelDbSettings<'_>,
    wanted: impl Fn(&[u8], &[u8]) -> Option<Vec<u8>>,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let mut findings = Findings::new(settings);
    let (mut found, mut bytes) = (FoundRecord::new(), 0);
    let read = collect(&mut findings, files, &mut |key, value, write| {
        let Some(value) = wanted(key, value).filter(|_| key.len() <= LONGEST_KEY) else {
            return Ok(());
        };
        bytes += value.len();
        if bytes > MOST_BYTES {
            return Err(End::limit(format!("its values have more than {MOST_BYTES} bytes")).into());
        }
        note(&mut found, key, value, write)
    });
    match read {
        Ok(()) => {}
        Err(LevelDbTrouble::Damage(what)) => return Err(what),
        Err(LevelDbTrouble::End(End::Cancelled)) => {
            return Err("somebody asked us to stop".to_owned());
        }
        Err(LevelDbTrouble::End(End::Verdict(
            Verdict::Limit { what: why } | Verdict::Unable { why },
        ))) => {
            return Err(why);
        }
        Err(LevelDbTrouble::End(End::Verdict(verdict))) => return Err(verdict.word().to_owned()),
    }
    let live = found.into_iter();
    Ok(live
        .filter_map(|(key, (_, value))| Some((key, value?)))
        .collect())
}

/// Remembers the newest write to a key; a write is its sequence number and its kind, as they stand behind a key.
fn note(
    found: &mut FoundRecord,
    key: &[u8],
    value: Vec<u8>,
    write: u64,
) -> Result<(), LevelDbTrouble> {
    let (sequence, is_alive) = (write >> 8, write & 0xff == 1);
    let value = is_alive.then_some(value);
    let is_full = found.len() == MOST_KEYS;
    match found.get_mut(key) {
        Some(known) if known.0 > sequence => {}
        Some(known) => *known = (sequence, value),
        None if is_full => {
            return Err(End::limit(format!("it has more than {MOST_KEYS} keys")).into());
        }
        None => {
            found.insert(key.to_vec(), (sequence, value));
        }
    }
    Ok(())
}

/// Receives a key, its value and its write.
type Each<'a> = dyn FnMut(&[u8], &[u8], u64) -> Result<(), LevelDbTrouble> + 'a;

fn collect(
    findings: &mut Findings<'_>,
    files: &dyn Files,
    each: &mut Each<'_>,
) -> Result<(), LevelDbTrouble> {
    let Some(manifest) = findings.current(files)? else {
        return damage("CURRENT does not lead to a manifest");
    };
    let live = findings.manifest(files, &manifest)?;
    for number in live.tables.keys() {
        let names = [format!("{number:06}.ldb"), format!("{number:06}.sst")];
        let mut is_there = false;
        for name in &names {
            if let Some(file) = open(files, name)? {
                is_there = true;
                let table = SortedTable::open(&*file, name, live.is_bytewise())?;
                for handle in table.blocks() {
                    findings.go_on()?;
                    let bytes = block::read(&*file, name, *handle)?;
                    findings.unpack(bytes.len() as u64, name)?;
                    block::entries(&bytes, |key, value| match super::table::split(key) {
                        Some((user, write)) => each(user, value, write),
                        None => damage("a key without a sequence number"),
                    })?;
                }
                break;
            }
        }
        if !is_there {
            return damage(format!("{}: it is missing", names[0]));
        }
    }
    for name in live.logs(files.names()) {
        let Some(file) = open(files, &name)? else {
            continue;
        };
        let mut records = Records::new(&*file, &name);
        while let Some(record) = records.next()? {
            findings.go_on()?;
            if let LogRecord::Whole(bytes) = record {
                batch::writes(&bytes, |key, value, write| each(key, value, write))?;
            }
        }
    }
    Ok(())
}
