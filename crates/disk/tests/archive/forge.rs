//! An archive of ours put together by hand from any tar, with any mistake in its index.

/// One frame, and what the index says of it.
#[derive(Clone)]
pub(crate) struct ForgedFrame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stored: u64,
    pub(crate) tar: u64,
    pub(crate) digest: [u8; 16],
    pub(crate) stored_digest: [u8; 8],
    pub(crate) start: Option<(u64, Vec<u8>)>,
}

impl ForgedFrame {
    pub(crate) fn new(tar: &[u8], start: Option<(u64, &[u8])>) -> Self {
        let bytes = zstd::bulk::compress(tar, 1).unwrap();
        Self {
            stored: bytes.len() as u64,
            tar: tar.len() as u64,
            digest: *blake3::hash(tar).as_bytes().first_chunk().unwrap(),
            stored_digest: *blake3::hash(&bytes).as_bytes().first_chunk().unwrap(),
            start: start.map(|(at, path)| (at, path.to_vec())),
            bytes,
        }
    }

    /// Other stored bytes, of which the index knows.
    pub(crate) fn replace(&mut self, bytes: Vec<u8>) {
        self.stored = bytes.len() as u64;
        self.stored_digest = *blake3::hash(&bytes).as_bytes().first_chunk().unwrap();
        self.bytes = bytes;
    }
}

/// A whole archive.
#[derive(Clone)]
pub(crate) struct Forged {
    pub(crate) frames: Vec<ForgedFrame>,
    pub(crate) version: u64,
    pub(crate) encoder: Vec<u8>,
    pub(crate) counts: [u64; 3],
    pub(crate) frame_count: Option<u64>,
    pub(crate) after_body: Vec<u8>,
    pub(crate) skippable: u32,
    /// Added to the length that the skippable frame says it has.
    pub(crate) lie: u32,
    pub(crate) body_length: Option<u32>,
    pub(crate) spoil_digest: bool,
}

impl Forged {
    /// One frame that holds the whole tar, which begins with the root.
    pub(crate) fn new(tar: &[u8], counts: [u64; 3]) -> Self {
        Self {
            frames: vec![ForgedFrame::new(tar, Some((0, b"")))],
            version: 1,
            encoder: b"forged".to_vec(),
            counts,
            frame_count: None,
            after_body: Vec::new(),
            skippable: 0x184D_2A57,
            lie: 0,
            body_length: None,
            spoil_digest: false,
        }
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, self.version);
        put(&mut body, self.encoder.len() as u64);
        body.extend_from_slice(&self.encoder);
        body.extend_from_slice(&[0; 32]);
        for count in self.counts {
            put(&mut body, count);
        }
        put(
            &mut body,
            self.frame_count.unwrap_or(self.frames.len() as u64),
        );
        for frame in &self.frames {
            put(&mut body, frame.stored);
            put(&mut body, frame.tar);
            body.extend_from_slice(&frame.digest);
            body.extend_from_slice(&frame.stored_digest);
            match &frame.start {
                None => put(&mut body, 0),
                Some((at, path)) => {
                    put(&mut body, at + 1);
                    put(&mut body, 0);
                    put(&mut body, path.len() as u64);
                    body.extend_from_slice(path);
                }
            }
        }
        body.extend_from_slice(&self.after_body);
        body
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut archive: Vec<u8> = Vec::new();
        for frame in &self.frames {
            archive.extend_from_slice(&frame.bytes);
        }
        let body = self.body();
        let stored = zstd::bulk::compress(&body, 1).unwrap();
        let number = |length: usize| u32::try_from(length).unwrap();
        archive.extend_from_slice(&self.skippable.to_le_bytes());
        archive.extend_from_slice(&(number(stored.len()) + 48 + self.lie).to_le_bytes());
        archive.extend_from_slice(&stored);
        archive.extend_from_slice(&number(stored.len()).to_le_bytes());
        let length = self.body_length.unwrap_or(number(body.len()));
        archive.extend_from_slice(&length.to_le_bytes());
        let mut digest = *blake3::hash(&stored).as_bytes();
        digest[0] ^= u8::from(self.spoil_digest);
        archive.extend_from_slice(&digest);
        archive.extend_from_slice(b"STASIS\x00\x01");
        archive
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}
