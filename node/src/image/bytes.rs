//! Reading a file of unknown content at offsets, never past its end.
//!
//! Room: `node`.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Something with a length that can be read at any offset.
pub(crate) trait Bytes {
    /// The length, bytes.
    fn length(&self) -> u64;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` beyond the end, and whatever the file system says.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

/// A file whose length was taken once.
#[derive(Debug)]
pub(crate) struct FileBytes<'a> {
    file: &'a File,
    length: u64,
}

impl<'a> FileBytes<'a> {
    /// `file` at its present length.
    pub(crate) fn new(file: &'a File) -> io::Result<Self> {
        Ok(Self { file, length: file.metadata()?.len() })
    }
}

impl Bytes for FileBytes<'_> {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

/// Reads up to `N` bytes at `offset`; what lies beyond the end stays zero.
pub(crate) fn window<const N: usize>(bytes: &impl Bytes, offset: u64) -> io::Result<[u8; N]> {
    let mut window = [0; N];
    let there = bytes.length().saturating_sub(offset).min(N as u64) as usize;
    bytes.read_at(offset, window.get_mut(..there).unwrap_or_default())?;
    Ok(window)
}
