//! A large file that is new: cut by content, or, a database, at fixed places.

use super::large_file::{CutFile, LargeFile, Part};
use super::large_read::{LargeRead, WINDOW};
use super::stream::PieceStream;
use super::workers::{Offered, Tools};
use crate::form::chunked::ChunkError;
use stasis_model::tree::chunking::PIECES_CUT;
use stasis_model::tree::list::Extent;
use std::sync::Arc;

/// A stretch of data that is being cut.
struct CutStretch {
    buffer: Vec<u8>,
    at: u64,
    end: u64,
    is_sqlite: bool,
}

impl<'a> LargeRead<'_, 'a> {
    /// Cuts the file into chunks and has them encoded.
    pub(super) fn cut(
        &self,
        is_sqlite: bool,
        tools: &mut Tools<'a>,
    ) -> Result<CutFile, ChunkError> {
        let of = Arc::new(LargeFile::default());
        let (mut stream, mut parts) = (PieceStream::new(), Vec::new());
        let (mut at, end) = (0, self.opened.seen.size);
        while at < end {
            let data = self.next_data(at, end)?.unwrap_or(end..end);
            if data.start > at {
                stream.zeros(data.start - at);
                parts.push(Part::Ready(Extent::Hole(data.start - at)));
                self.count(0, data.start - at);
            }
            let mut stretch = CutStretch {
                buffer: Vec::new(),
                at: data.start,
                end: data.end,
                is_sqlite,
            };
            while let Some(bytes) = self.next_chunk(&mut stretch, &mut stream)? {
                let number = of.expect();
                let length = u32::try_from(bytes.len()).expect("a chunk is short");
                parts.push(Part::Fresh {
                    number,
                    offset: 0,
                    length,
                });
                let of = of.clone();
                self.pool.offer(Offered { bytes, number, of }, tools)?;
            }
            at = data.end;
            if stretch.at < stretch.end {
                break; // the file ends before it should: it changed
            }
        }
        let (size, digest, blocks) = stream.finish();
        Ok(CutFile {
            size,
            digest,
            blocks,
            parts,
            of,
        })
    }

    fn next_chunk(
        &self,
        stretch: &mut CutStretch,
        stream: &mut PieceStream,
    ) -> Result<Option<Vec<u8>>, ChunkError> {
        self.go_on()?;
        let cutter = &self.pool.cutter;
        while stretch.buffer.len() < cutter.reach() && stretch.at < stretch.end {
            let from = stretch.buffer.len();
            let wanted = (stretch.end - stretch.at).min(WINDOW as u64);
            stretch
                .buffer
                .resize(from + usize::try_from(wanted).unwrap_or(WINDOW), 0);
            let read = self.read_at(&mut stretch.buffer[from..], stretch.at)?;
            stretch.buffer.truncate(from + read);
            stream.update(&stretch.buffer[from..]);
            self.count(0, read as u64);
            if read == 0 {
                break;
            }
            stretch.at += read as u64;
        }
        if stretch.buffer.is_empty() {
            return Ok(None);
        }
        let cut = if stretch.is_sqlite {
            // Where a database is cut depends on where the chunk begins, so that pieces never straddle two.
            let position = stretch.at - stretch.buffer.len() as u64;
            let fixed = PIECES_CUT - position % PIECES_CUT;
            stretch
                .buffer
                .len()
                .min(usize::try_from(fixed).unwrap_or(usize::MAX))
        } else {
            cutter.cut(&stretch.buffer)
        };
        let rest = stretch.buffer.split_off(cut);
        Ok(Some(std::mem::replace(&mut stretch.buffer, rest)))
    }
}
