//! Tars without an index: as they are, or compressed by gzip or zstd as one stream.

use super::{ArchiveContext, ArchiveError, Problem, ReadAt};
use flate2::read::MultiGzDecoder;
use stasis_model::failure::AtPath;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zstd streams that need a larger window than 128 MiB are refused.
const WINDOW_LOG: u32 = 27;
/// How much tar is read at once.
const CHUNK: usize = 256 << 10;
/// How much is read from the file at once.
const BUFFER: usize = 128 << 10;

/// How a tar is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, in one or several members.
    Gzip,
    /// zstd, in one or several frames.
    Zstd,
}

/// An open tar without an index.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) path: PathBuf,
    pub(super) compression: Compression,
    pub(super) bytes: Arc<dyn ReadAt>,
}

impl Plain {
    /// Looks at the first bytes.
    pub(super) fn open(bytes: Arc<dyn ReadAt>, path: &Path) -> Result<Self, ArchiveError> {
        let mut first = [0; 4];
        let read = bytes.read_at(&mut first, 0);
        let read = read.at("read", path)?;
        let compression = match first[..read] {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Compression::Zstd,
            _ => Compression::None,
        };
        let path = path.to_owned();
        Ok(Self {
            path,
            compression,
            bytes,
        })
    }

    /// Begins to read the tar.
    pub(super) fn stream(&self) -> Result<Stream<'_>, ArchiveError> {
        let file = BufReader::with_capacity(
            BUFFER,
            FromStart {
                bytes: &*self.bytes,
                at: 0,
            },
        );
        let reader: Box<dyn Read + '_> = match self.compression {
            Compression::None => Box::new(file),
            Compression::Gzip => Box::new(MultiGzDecoder::new(file)),
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(file).at("read", &self.path)?;
                decoder.window_log_max(WINDOW_LOG).at("read", &self.path)?;
                Box::new(decoder)
            }
        };
        Ok(Stream {
            path: &self.path,
            compression: self.compression,
            reader,
        })
    }
}

/// The tar bytes of a plain archive.
pub(super) struct Stream<'a> {
    path: &'a Path,
    compression: Compression,
    reader: Box<dyn Read + 'a>,
}

impl<'a> Stream<'a> {
    /// Those that somebody sends, known as `path`.
    pub(super) fn of(reader: impl Read + 'a, path: &'a Path) -> Self {
        Self {
            path,
            compression: Compression::None,
            reader: Box::new(reader),
        }
    }

    /// The next bytes; none at the end.
    pub(super) fn next(&mut self) -> Result<Vec<u8>, ArchiveError> {
        let mut chunk = vec![0; CHUNK];
        let mut filled = 0;
        while filled < CHUNK {
            match self.reader.read(&mut chunk[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.failed(error),
            }
        }
        chunk.truncate(filled);
        Ok(chunk)
    }

    /// A decompressor has no other way to say that the bytes are damaged.
    fn failed<T>(&self, error: io::Error) -> Result<T, ArchiveError> {
        let is_system = error.raw_os_error().is_some();
        if is_system || self.compression == Compression::None {
            return Ok(Err(error).at("read", self.path)?);
        }
        Err(Problem::Compression(error.to_string())).of_archive(self.path)
    }
}

/// Reads bytes from their beginning; nobody else's position moves.
struct FromStart<'a> {
    bytes: &'a dyn ReadAt,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
