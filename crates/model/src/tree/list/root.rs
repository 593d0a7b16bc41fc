//! Where the sections of a list lie.

use super::wire::{SectionReader, bad_number, put_chunk, put_number, unknown};
use super::{Slice, StoredChunk};
use crate::invalid::Invalid;
use std::collections::HashMap;

const VERSION: u8 = 1;

/// One section of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionPlace {
    /// Where its bytes lie.
    pub slice: Slice,
    /// The beginning of their BLAKE3 digest: the same section is recognised without being fetched.
    pub digest: [u8; 16],
    /// How many entries it holds.
    pub entries: u32,
}

impl SectionPlace {
    /// The digest of a section's bytes.
    pub fn digest_of(section: &[u8]) -> [u8; 16] {
        let digest = blake3::hash(section);
        *digest
            .as_bytes()
            .first_chunk()
            .expect("a digest is longer than its beginning")
    }
}

/// All sections of a list, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListRoot {
    /// Where each lies.
    pub sections: Vec<SectionPlace>,
}

impl ListRoot {
    /// How many entries all sections hold.
    pub fn entries(&self) -> u64 {
        self.sections
            .iter()
            .map(|section| u64::from(section.entries))
            .sum()
    }

    /// The root's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (mut table, mut places) = (Vec::new(), HashMap::new());
        let mut rows = Vec::new();
        for section in &self.sections {
            let chunk = section.slice.chunk;
            let place = *places.entry(chunk).or_insert_with(|| {
                table.push(chunk);
                table.len() - 1
            });
            put_number(&mut rows, place as u64);
            put_number(&mut rows, section.slice.offset.into());
            put_number(&mut rows, section.slice.length.into());
            put_number(&mut rows, section.entries.into());
            rows.extend_from_slice(&section.digest);
        }
        let mut bytes = vec![VERSION];
        put_number(&mut bytes, table.len() as u64);
        for chunk in &table {
            put_chunk(&mut bytes, chunk);
        }
        put_number(&mut bytes, self.sections.len() as u64);
        bytes.append(&mut rows);
        bytes
    }

    /// Reads a root.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut reader = SectionReader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(unknown("a root of another version"));
        }
        let table = reader.chunks()?;
        let count = reader.count(20)?;
        let sections = (0..count).map(|_| section(&mut reader, &table));
        let sections = sections.collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self { sections })
    }
}

fn section(reader: &mut SectionReader<'_>, table: &[StoredChunk]) -> Result<SectionPlace, Invalid> {
    let place = usize::try_from(reader.number()?).ok();
    let chunk = place.and_then(|place| table.get(place));
    let chunk = *chunk.ok_or_else(|| bad_number("a chunk that is not in its table"))?;
    let (offset, length) = (reader.small("an offset")?, reader.small("a length")?);
    let entries = reader.small("a count")?;
    let end = offset.checked_add(length);
    if end.is_none_or(|end| end > chunk.plain_len) {
        return Err(bad_number("a section beyond its chunk"));
    }
    Ok(SectionPlace {
        slice: Slice {
            chunk,
            offset,
            length,
        },
        digest: reader.array()?,
        entries,
    })
}
