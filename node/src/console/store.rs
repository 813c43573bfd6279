//! A console's backlog on disk: the first MiB of a start and the latest one, in files beside the instance's disk, so
//! that it survives the node.
//!
//! Room: `node`. Blocking. `console.head` takes the first bytes; then `console.tail` grows, and each time it is full
//! it becomes `console.tail.old`. `console.state` says which start the files are of and how much has been let go.
//! Files are opened per write: a thousand consoles hold no descriptors here.
use super::Boot;
use super::session::notice;
use crate::own_file;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

#[cfg(test)]
mod tests;

/// Bytes kept of a start's beginning, and as many of its latest output.
pub(super) const PART_BYTES: u64 = 1024 * 1024;

/// The backlog of one instance.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    part: u64,
    kept: Option<Kept>,
}

/// What lies in the files, known after the first look.
#[derive(Debug, Clone, Copy)]
struct Kept {
    state: State,
    head: u64,
    tail: u64,
    old: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct State {
    boot: u64,
    left_out: u64,
}

impl Store {
    pub(super) fn new(dir: PathBuf, part: u64) -> Self {
        Self { dir, part: part.max(1), kept: None }
    }

    /// Makes this the backlog of `boot`: another start's files go.
    pub(super) fn begin(&mut self, boot: Boot) -> io::Result<()> {
        let kept = self.look()?;
        if kept.state.boot == boot.0 && self.path("state").exists() {
            return Ok(());
        }
        for part in ["head", "tail.old", "tail"] {
            match fs::remove_file(self.path(part)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        let state = State { boot: boot.0, left_out: 0 };
        self.kept = None;
        self.save(state)?;
        self.kept = Some(Kept { state, head: 0, tail: 0, old: 0 });
        Ok(())
    }

    /// Adds output.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut kept = self.look()?;
        // Until all is written, what the files hold is not known.
        self.kept = None;
        if kept.head < self.part && kept.tail == 0 && kept.old == 0 {
            bytes = self.fill("head", &mut kept.head, bytes)?;
        }
        while !bytes.is_empty() {
            if kept.tail >= self.part {
                kept.state.left_out = kept.state.left_out.saturating_add(kept.old);
                self.save(kept.state)?;
                fs::rename(self.path("tail"), self.path("tail.old"))?;
                kept.old = kept.tail;
                kept.tail = 0;
            }
            bytes = self.fill("tail", &mut kept.tail, bytes)?;
        }
        self.kept = Some(kept);
        Ok(())
    }

    /// Notes that `count` bytes of output could not be kept.
    pub(super) fn lose(&mut self, count: u64) -> io::Result<()> {
        let mut kept = self.look()?;
        kept.state.left_out = kept.state.left_out.saturating_add(count);
        self.kept = None;
        self.save(kept.state)?;
        self.kept = Some(kept);
        Ok(())
    }

    /// The backlog as a viewer is to see it: the first part, a notice of what is left out, the latest part.
    pub(super) fn backlog(&mut self) -> io::Result<Vec<u8>> {
        let kept = self.look()?;
        let mut out = Vec::new();
        self.read("head", self.part, &mut out)?;
        // The latest `part` bytes lie at the end of the old tail and in the tail.
        let from_old = self.part.saturating_sub(kept.tail).min(kept.old);
        let left_out = kept.state.left_out.saturating_add(kept.old.saturating_sub(from_old));
        if left_out > 0 {
            out.extend_from_slice(&notice(&format!("{left_out} bytes are left out here")));
        }
        self.read("tail.old", from_old, &mut out)?;
        self.read("tail", self.part, &mut out)?;
        Ok(out)
    }

    fn look(&mut self) -> io::Result<Kept> {
        if let Some(kept) = self.kept {
            return Ok(kept);
        }
        let mut text = String::new();
        let state = match own_file::open(&self.path("state"), OpenOptions::new().read(true)) {
            // A state that cannot be read only loses the count of what was let go.
            Ok(file) => {
                file.take(4096).read_to_string(&mut text)?;
                serde_json::from_str(&text).unwrap_or_default()
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => State::default(),
            Err(e) => return Err(e),
        };
        let kept = Kept { state, head: self.len("head")?, tail: self.len("tail")?, old: self.len("tail.old")? };
        self.kept = Some(kept);
        Ok(kept)
    }

    fn len(&self, part: &str) -> io::Result<u64> {
        match fs::symlink_metadata(self.path(part)) {
            Ok(meta) if meta.is_file() => Ok(meta.len()),
            Ok(_) => Err(io::Error::other(format!("{} is no regular file", self.path(part).display()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(e),
        }
    }

    fn fill<'a>(&self, part: &str, len: &mut u64, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let room = usize::try_from(self.part.saturating_sub(*len)).unwrap_or(usize::MAX);
        let (now, later) = bytes.split_at(room.min(bytes.len()));
        let mut file = own_file::open(&self.path(part), OpenOptions::new().append(true).create(true))?;
        file.write_all(now)?;
        *len = len.saturating_add(now.len() as u64);
        Ok(later)
    }

    /// Appends the last `most` bytes of a part to `out`.
    fn read(&self, part: &str, most: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let mut file = match own_file::open(&self.path(part), OpenOptions::new().read(true)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let skip = file.metadata()?.len().saturating_sub(most);
        file.seek(SeekFrom::Start(skip))?;
        file.take(most).read_to_end(out)?;
        Ok(())
    }

    fn save(&self, state: State) -> io::Result<()> {
        let new = self.path("state.new");
        let text = serde_json::to_string(&state).map_err(io::Error::other)?;
        let mut file = own_file::open(&new, OpenOptions::new().write(true).create(true).truncate(true))?;
        file.write_all(text.as_bytes())?;
        fs::rename(new, self.path("state"))
    }

    fn path(&self, part: &str) -> PathBuf {
        self.dir.join(format!("console.{part}"))
    }
}
