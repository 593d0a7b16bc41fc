//! Where the bytes of an archive are: in a file here, or anywhere that can be asked for a part of them.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes that can be read at any place, by several threads at once.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// How many there are.
    fn length(&self) -> io::Result<u64>;

    /// Reads some of those from `offset` on, as [`FileExt::read_at`] does; none at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `buffer` from `offset` on, or fails.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Bytes of which somebody hears that they were read: from where to where.
pub struct CountedBytes {
    bytes: Arc<dyn ReadAt>,
    heard: Box<dyn Fn(u64, u64) + Send + Sync>,
}

impl CountedBytes {
    /// The same bytes; `heard` is told of each stretch.
    pub fn new(bytes: Arc<dyn ReadAt>, heard: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        let heard = Box::new(heard);
        Self { bytes, heard }
    }
}

impl fmt::Debug for CountedBytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(out)
    }
}

impl ReadAt for CountedBytes {
    fn length(&self) -> io::Result<u64> {
        self.bytes.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.bytes.read_at(buffer, offset)?;
        (self.heard)(offset, offset + read as u64);
        Ok(read)
    }
}

impl ReadAt for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}
