//! Bytes that come from the async world and are read by blocking code, and the other way round; never all of them in memory.

use crate::bridge::{self, Crossing};
use crate::error::Error;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use stasis_model::failure::AtPath as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::pin::Pin;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How many pieces wait to be sent.
const WAITING: usize = 8;
/// How long a piece is.
const PIECE: usize = 256 << 10;

/// Bytes of an async stream, for threads that may block.
pub(crate) struct StreamReader {
    crossing: Crossing,
    stream: Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>,
    rest: Bytes,
}

impl StreamReader {
    /// From within the async world.
    pub(crate) fn new(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self {
            crossing: Crossing::here(),
            stream: Box::pin(stream.fuse()),
            rest: Bytes::new(),
        }
    }
}

impl Read for StreamReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.crossing.wait(self.stream.next()) {
                Some(piece) => self.rest = piece?,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.rest.len());
        buffer[..length].copy_from_slice(&self.rest.split_to(length));
        Ok(length)
    }
}

/// What blocking code writes, for an async stream.
pub(crate) struct StreamWriter {
    crossing: Crossing,
    sender: Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

/// What is written to the one comes out of the other. From within the async world.
pub(crate) fn piped() -> (
    StreamWriter,
    impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) {
    let (sender, receiver) = channel(WAITING);
    let writer = StreamWriter {
        crossing: Crossing::here(),
        sender,
        piece: Vec::with_capacity(PIECE),
    };
    let pieces = stream::unfold(receiver, |mut receiver: Receiver<_>| async {
        Some((receiver.recv().await?, receiver))
    });
    (writer, pieces)
}

/// The bytes of a file as an async stream, and what reads it: that must be waited for, too.
pub(crate) fn piped_file(
    path: PathBuf,
) -> (
    impl Future<Output = Result<(), Error>>,
    impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) {
    let (mut writer, stream) = piped();
    let reading = bridge::blocking(move || {
        let copied = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut writer));
        let error = copied.as_ref().err();
        let ended = writer.end(error.map(|error| error as &(dyn std::error::Error + 'static)));
        // That nobody reads on is said by whoever did.
        drop(ended);
        copied.at("read", &path)?;
        Ok(())
    });
    (reading, stream)
}

impl StreamWriter {
    fn send(&mut self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = self.crossing.wait(self.sender.send(piece));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Ends the stream: as it should, or with what went wrong, so that nobody takes what was sent for the whole.
    pub(crate) fn end(
        mut self,
        error: Option<&(dyn std::error::Error + 'static)>,
    ) -> io::Result<()> {
        match error {
            Some(error) => self.send(Err(io::Error::other(error.to_string()))),
            None => self.flush(),
        }
    }
}

impl Write for StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..length]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.send(Ok(piece.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_written_is_what_is_read_however_it_is_cut() {
        let (mut writer, stream) = piped();
        let bytes: Vec<u8> = (0..=250).cycle().take(3 * PIECE + 17).collect();
        let sent = bytes.clone();
        let writing = bridge::blocking(move || {
            for part in sent.chunks(100_000) {
                writer.write_all(part)?;
            }
            writer.end(None)
        });
        let mut reader = StreamReader::new(stream);
        let reading = bridge::blocking(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        let (written, read) = tokio::join!(writing, reading);

        written.unwrap();
        assert!(read.unwrap() == bytes);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_source_that_fails_is_not_taken_for_one_that_ended() {
        let (mut writer, stream) = piped();
        let writing = bridge::blocking(move || {
            writer.write_all(b"half")?;
            writer.flush()?;
            let error = io::Error::other("the disk is gone");
            writer.end(Some(&error))
        });
        let mut reader = StreamReader::new(stream);
        let reading = bridge::blocking(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read)
        });
        let (written, read) = tokio::join!(writing, reading);

        written.unwrap();
        assert!(read.unwrap_err().to_string().contains("the disk is gone"));
    }
}
