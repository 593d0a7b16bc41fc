//! One database of 1 GiB.

use super::{Planned, Variant, What, World};
use anyhow::Result;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) const ONE_FILE: &str = "data.db";

const FULL: u64 = 1 << 30;
const PAGE: usize = 4096;
const INSERTED: &[u8; 7] = b"stasis!";

pub(super) fn plan(world: &World) -> Vec<Planned> {
    let pages = world.scaled(FULL / PAGE as u64).max(16);
    vec![Planned::new(ONE_FILE, What::Pages(pages * PAGE as u64))]
}

/// One page of rows: a header, pointers that grow from the front and cells that grow from the back.
fn page(world: &World, number: u64, version: u64) -> Vec<u8> {
    let mut dice = world.dice("page");
    let mut dice = crate::dice::Dice::new(dice.roll() ^ (number << 8) ^ version);
    let mut page = vec![0; PAGE];
    let start = if number == 0 { 100 } else { 0 };
    if number == 0 {
        // Not the word of SQLite: the bytes that are inserted would make it a damaged database, which is not what is measured.
        page[..16].copy_from_slice(b"Pages, format 1\0");
        page[16..18].copy_from_slice(&4096_u16.to_be_bytes());
    }
    let (mut front, mut back, mut cells) = (start + 8, PAGE, 0_u16);
    loop {
        let text = 60 + dice.index(240);
        if front + 2 + text + 12 > back {
            break;
        }
        let mut cell = (number * 64 + u64::from(cells)).to_be_bytes().to_vec();
        cell.extend_from_slice(&dice.roll().to_le_bytes()[..4]);
        cell.extend_from_slice(&world.words.prose(&mut dice, text));
        back -= cell.len();
        page[back..back + cell.len()].copy_from_slice(&cell);
        let pointer = u16::try_from(back).unwrap_or_default();
        page[front..front + 2].copy_from_slice(&pointer.to_be_bytes());
        (front, cells) = (front + 2, cells + 1);
    }
    page[start] = 0x0d;
    page[start + 3..start + 5].copy_from_slice(&cells.to_be_bytes());
    page
}

pub(super) fn write(world: &World, path: &Path, size: u64) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for number in 0..size / PAGE as u64 {
        file.write_all(&page(world, number, 0))?;
    }
    Ok(file.into_inner()?.sync_all()?)
}

/// One page in a hundred is another, here and there.
pub(super) fn change(world: &World, mut variant: Variant) -> Result<Variant> {
    let path = variant.replace(ONE_FILE)?;
    let file = File::options().write(true).open(path)?;
    let pages = file.metadata()?.len() / PAGE as u64;
    let mut dice = world.dice("changed pages");
    for _ in 0..pages.div_ceil(100) {
        let number = dice.below(pages);
        file.write_all_at(&page(world, number, 1), number * PAGE as u64)?;
    }
    file.sync_all()?;
    Ok(variant)
}

/// Seven bytes more near the start, and everything behind them moved.
pub(super) fn insert(mut variant: Variant) -> Result<Variant> {
    let path = variant.replace(ONE_FILE)?;
    let mut original = File::open(variant.original(ONE_FILE))?;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    std::io::copy(&mut (&original).take(PAGE as u64 + 904), &mut file)?;
    file.write_all(INSERTED)?;
    std::io::copy(&mut original, &mut file)?;
    file.into_inner()?.sync_all()?;
    Ok(variant)
}
