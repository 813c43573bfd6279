//! A download's file: written under a name of its own, given its final name only when it is whole and checked.
//!
//! Room: `node`. Blocking. A part that is dropped before it was published is removed.
use super::check::{self, CheckError};
use super::fetch::Piece;
use super::{BaseImage, PART_PREFIX, storage_fault};
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use bcd_protocol::definition::ImageRef;
use bcd_protocol::id::Sha256Digest;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::NamedTempFile;
use tokio::sync::mpsc;

/// The unit of writing: blocks of zeroes become holes, as most of a raw image is nothing else.
const BLOCK: usize = 64 << 10;
/// Bytes of the file system that a download leaves free: the guests' disks lie there too.
pub(super) const RESERVE: u64 = 256 << 20;
/// Bytes written between two looks at what is free.
const LOOK: u64 = 16 << 20;

/// The file of a download under way: removed when it is dropped unpublished.
#[derive(Debug)]
pub(super) struct Part {
    file: NamedTempFile,
}

impl Part {
    /// Makes a new, empty one (0600) beside the published images.
    pub(super) fn create(layout: &Layout, image: &ImageRef) -> Result<Self, Fault> {
        let directory = layout.images();
        let file = tempfile::Builder::new()
            .prefix(&format!("{PART_PREFIX}{}-", image.sha256))
            .tempfile_in(&directory)
            .map_err(|e| storage_fault(&directory, e))?;
        Ok(Self { file })
    }

    /// Takes pieces until the end, then digests, checks and publishes. `shown` is the URL for people.
    ///
    /// # Errors
    /// `ImageRejected` for a wrong digest or a failed check, `ResourcesExhausted` for a full disk, `Unavailable` when the
    /// pieces stop before the end.
    pub(super) fn receive(
        self,
        layout: &Layout,
        image: ImageRef,
        shown: &str,
        mut pieces: mpsc::Receiver<Piece>,
    ) -> Result<BaseImage, Fault> {
        let mut sink = Sink::new(RESERVE);
        loop {
            match pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => sink.take(self.file.as_file(), &bytes).map_err(|e| self.fault(e))?,
                Some(Piece::End) => break,
                None => {
                    return Err(Fault::new(FaultKind::Unavailable, format!("the download of {shown} was given up")));
                }
            }
        }
        drop(pieces);
        let (found, bytes) = sink.end(self.file.as_file()).map_err(|e| self.fault(e))?;
        if found != image.sha256 {
            let sentence = format!(
                "{shown} has SHA-256 {found} ({bytes} bytes), and image.sha256 is {}: correct the one or the other",
                image.sha256
            );
            return Err(Fault::new(FaultKind::ImageRejected, sentence));
        }
        let virtual_bytes = check::tenant(self.file.as_file(), image.format).map_err(|error| match error {
            CheckError::Rejected(rejection) => {
                Fault::because(FaultKind::ImageRejected, format!("image {shown} is refused"), rejection)
            }
            CheckError::Read(error) => self.fault(error),
        })?;
        let path = layout.image(&image);
        self.publish(&path).map_err(|e| storage_fault(&path, e))?;
        Ok(BaseImage { path, image, virtual_bytes })
    }

    /// Everything is on disk before the name is, and the name before anyone is told.
    fn publish(self, path: &Path) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        self.file.persist(path).map_err(|e| e.error)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    fn fault(&self, error: io::Error) -> Fault {
        storage_fault(self.file.path(), error)
    }
}

/// Bytes left for us in the file system that `file` lies in.
pub(super) fn free_bytes(file: impl AsFd) -> io::Result<u64> {
    let stat = nix::sys::statvfs::fstatvfs(file)?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

/// Hashes what comes and writes it in whole blocks, as long as the file system has more than the reserve left.
struct Sink {
    hash: Sha256,
    block: Vec<u8>,
    written: u64,
    /// Where the next look at what is free is due.
    look_at: u64,
    reserve: u64,
}

impl Sink {
    fn new(reserve: u64) -> Self {
        Self { hash: Sha256::new(), block: Vec::with_capacity(BLOCK), written: 0, look_at: LOOK, reserve }
    }

    fn take(&mut self, file: &File, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            rest = later;
            if self.block.len() == BLOCK {
                self.flush(file)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, file: &File) -> io::Result<()> {
        if self.block.iter().any(|byte| *byte != 0) {
            file.write_all_at(&self.block, self.written)?;
        }
        self.written += self.block.len() as u64;
        self.block.clear();
        if self.written >= self.look_at {
            self.look_at = self.written + LOOK;
            if free_bytes(file)? < self.reserve {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }

    /// Writes the last block and sets the length; answers digest and length.
    fn end(mut self, file: &File) -> io::Result<(Sha256Digest, u64)> {
        self.flush(file)?;
        file.set_len(self.written)?;
        Ok((Sha256Digest::from_bytes(self.hash.finalize().into()), self.written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_stops_when_the_reserve_is_reached() {
        let file = tempfile::tempfile().unwrap();
        let mut sink = Sink::new(u64::MAX);
        let mebibyte = vec![1; 1 << 20];
        let written = (0..64).take_while(|_| sink.take(&file, &mebibyte).is_ok()).count();
        assert_eq!(written, 15, "the sixteenth MiB is where it looks");
        assert_eq!(sink.take(&file, &mebibyte).map_err(|e| e.kind()), Ok(()), "until the next look");
        let mut sink = Sink::new(0);
        for _ in 0..40 {
            sink.take(&file, &mebibyte).unwrap();
        }
    }

    #[test]
    fn pieces_of_any_length_become_the_same_file_and_digest() {
        let mut content = vec![0; 3 * BLOCK + 17];
        content[BLOCK - 1] = 1;
        content[2 * BLOCK..].fill(7);
        for length in [1, 4095, BLOCK - 1, BLOCK, BLOCK + 1, content.len()] {
            let file = tempfile::tempfile().unwrap();
            let mut sink = Sink::new(0);
            for piece in content.chunks(length) {
                sink.take(&file, piece).unwrap();
            }
            let (digest, bytes) = sink.end(&file).unwrap();
            assert_eq!(digest.as_bytes().as_slice(), Sha256::digest(&content).as_slice());
            assert_eq!(bytes, content.len() as u64);
            let mut written = vec![0xff; content.len()];
            file.read_exact_at(&mut written, 0).unwrap();
            assert!(written == content && file.metadata().unwrap().len() == bytes, "pieces of {length}");
        }
    }
}
