//! A file of this host that becomes an object.

use crate::bridge;
use bytes::Bytes;
use futures_util::stream;
use stasis_store::bucket::{Bucket, BucketError, BucketErrorKind, ByteStream};
use stasis_store::layout::Key;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// How much is read from the file at once.
const PIECE: usize = 1 << 20;
/// How often the whole is tried.
const ATTEMPTS: u32 = 3;
/// How long to wait before the second attempt; twice as long before the third.
const PAUSE: Duration = Duration::from_millis(500);

/// Stores the bytes of `file` under a name that stands for them; three tries. Returns how many they are.
pub(crate) async fn upload(
    bucket: &dyn Bucket,
    key: &Key,
    file: &Arc<File>,
) -> Result<u64, BucketError> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match bucket
            .put_stream(key, pieces(file.clone(), 0..u64::MAX))
            .await
        {
            Err(error) if error.kind == BucketErrorKind::Unreachable => {
                tracing::warn!(%error, %key, "the upload failed; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            settled => return settled,
        }
    }
    bucket
        .put_stream(key, pieces(file.clone(), 0..u64::MAX))
        .await
}

/// The bytes of a file in a range, in order; what lies beyond its end is left out.
pub(crate) fn pieces(file: Arc<File>, range: Range<u64>) -> ByteStream {
    Box::pin(stream::try_unfold((file, range), async |(file, range)| {
        let (at, end) = (range.start, range.end);
        let most = end.saturating_sub(at);
        let (read, file) = bridge::blocking(move || (piece(&file, at, most), file)).await;
        let read = read?;
        let rest = at + read.len() as u64..end;
        Ok((!read.is_empty()).then_some((read, (file, rest))))
    }))
}

fn piece(file: &File, at: u64, most: u64) -> io::Result<Bytes> {
    let length = usize::try_from(most).map_or(PIECE, |most| most.min(PIECE));
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}
