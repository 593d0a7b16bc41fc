//! A tar put together byte by byte, with any mistake one likes.

/// One header block with everything in it free to choose.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) name: Vec<u8>,
    pub(crate) mode: Vec<u8>,
    pub(crate) uid: Vec<u8>,
    pub(crate) size: Vec<u8>,
    pub(crate) mtime: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) target: Vec<u8>,
    pub(crate) magic: Vec<u8>,
    pub(crate) prefix: Vec<u8>,
    pub(crate) checksum: Option<Vec<u8>>,
}

impl Block {
    pub(crate) fn new(kind: u8, name: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            mode: b"0000644\0".to_vec(),
            uid: b"0000000\0".to_vec(),
            size: b"00000000000\0".to_vec(),
            mtime: b"14524770400\0".to_vec(),
            kind,
            target: Vec::new(),
            magic: b"ustar\x0000".to_vec(),
            prefix: Vec::new(),
            checksum: None,
        }
    }

    pub(crate) fn sized(mut self, size: usize) -> Self {
        self.size = format!("{size:011o}\0").into_bytes();
        self
    }

    pub(crate) fn to(mut self, target: &[u8]) -> Self {
        self.target = target.to_vec();
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut block = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.name);
        put(100, &self.mode);
        put(108, &self.uid);
        put(116, b"0000000\0");
        put(124, &self.size);
        put(136, &self.mtime);
        put(148, b"        ");
        put(156, &[self.kind]);
        put(157, &self.target);
        put(257, &self.magic);
        put(329, b"0000000\x000000000\0");
        put(345, &self.prefix);
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        let sum = format!("{sum:06o}\0 ").into_bytes();
        block[148..156].copy_from_slice(self.checksum.as_ref().unwrap_or(&sum));
        block
    }
}

/// A tar that grows.
#[derive(Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn block(self, block: &Block) -> Self {
        self.bytes(&block.bytes())
    }

    /// Bytes, filled up to whole blocks.
    pub(crate) fn body(mut self, body: &[u8]) -> Self {
        self.0.extend_from_slice(body);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, name: &str, content: &[u8]) -> Self {
        let block = Block::new(b'0', name.as_bytes()).sized(content.len());
        self.block(&block).body(content)
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        let mut block = Block::new(b'5', name.as_bytes());
        block.mode = b"0000755\0".to_vec();
        self.block(&block)
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.block(&Block::new(b'2', name.as_bytes()).to(target.as_bytes()))
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.block(&Block::new(b'1', name.as_bytes()).to(target.as_bytes()))
    }

    pub(crate) fn pax(self, records: &[(&[u8], &[u8])]) -> Self {
        self.extended(b'x', &spell(records))
    }

    pub(crate) fn global(self, records: &[(&[u8], &[u8])]) -> Self {
        self.extended(b'g', &spell(records))
    }

    pub(crate) fn gnu_long(self, kind: u8, name: &[u8]) -> Self {
        self.extended(kind, &[name, b"\0"].concat())
    }

    pub(crate) fn extended(self, kind: u8, body: &[u8]) -> Self {
        let block = Block::new(kind, b"././@PaxHeader").sized(body.len());
        self.block(&block).body(body)
    }

    pub(crate) fn end(self) -> Vec<u8> {
        self.bytes(&[0; 1024]).0
    }
}

/// Records with the right lengths.
pub(crate) fn spell(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut length = rest;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        bytes.extend_from_slice(format!("{length} ").as_bytes());
        bytes.extend_from_slice(&[*key, b"=", *value, b"\n"].concat());
    }
    bytes
}
