//! Looks at directories and files, and at who may do what with them.
//!
//! Room: `node`. Links are never followed.
use super::super::facts::{Document, Entry, Kind, Part, Place, Search, Seen};
use crate::spec;
use crate::spec::parse::DOCUMENT_BYTES;
use posix_acl::{ACL_EXECUTE, PosixACL, Qualifier};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most files of the secrets that are named.
const NAMED: usize = 3;

/// Every part of `path`, from `/` on.
pub(super) fn way(path: &Path) -> Vec<Part> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut parts: Vec<Part> = absolute.ancestors().map(|p| Part { path: p.to_owned(), seen: see(p) }).collect();
    parts.reverse();
    parts
}

fn see(path: &Path) -> Seen {
    match fs::symlink_metadata(path) {
        Ok(meta) => {
            let kind = match meta.file_type() {
                kind if kind.is_dir() => Kind::Directory,
                kind if kind.is_file() => Kind::File,
                kind if kind.is_symlink() => Kind::Link,
                _ => Kind::Other,
            };
            Seen::There(Entry { kind, uid: meta.uid(), gid: meta.gid(), mode: meta.mode() & 0o7777 })
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Seen::Missing,
        Err(e) => Seen::Unseen(e.to_string()),
    }
}

pub(super) fn place(path: &Path) -> Place {
    let free = nix::sys::statvfs::statvfs(path).ok();
    let free = free.map(|s| s.blocks_available().saturating_mul(s.fragment_size()));
    Place { way: way(path), free }
}

/// The directories above `path` that group kvm may not search; what cannot be told is left out.
pub(super) fn closed(path: &Path, kvm: Option<u32>) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1).filter(|above| searchable(above, kvm) == Ok(Search::Refused));
    above.map(Path::to_owned).collect()
}

pub(super) fn searchable(path: &Path, kvm: Option<u32>) -> Result<Search, String> {
    let meta = fs::metadata(path).map_err(|e| e.to_string())?;
    let kvm = kvm.ok_or_else(|| "there is no group kvm".to_owned())?;
    let perm = match PosixACL::read_acl(path) {
        Ok(acl) => {
            let mask = acl.get(Qualifier::Mask).unwrap_or(ACL_EXECUTE);
            let named = acl.get(Qualifier::Group(kvm)).map(|perm| perm & mask);
            let owning = acl.get(Qualifier::GroupObj).filter(|_| meta.gid() == kvm).map(|perm| perm & mask);
            // An entry that names the group decides; without one, what everyone has.
            match (named, owning) {
                (None, None) => acl.get(Qualifier::Other).unwrap_or_default(),
                (named, owning) => named.unwrap_or_default() | owning.unwrap_or_default(),
            }
        }
        Err(e) => return Err(e.to_string()),
    };
    Ok(if perm & ACL_EXECUTE != 0 { Search::Allowed } else { Search::Refused })
}

/// Files of user data that more than their owner may read, or that are not the node user's.
pub(super) fn loose_secrets(path: &Path, node: Option<u32>) -> Option<Vec<String>> {
    let mut loose = Vec::new();
    for entry in fs::read_dir(path).ok()? {
        let entry = entry.ok()?;
        let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
        let mode = meta.mode() & 0o7777;
        if !meta.is_file() || mode & 0o077 != 0 || node.is_some_and(|node| node != meta.uid()) {
            loose.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    loose.sort();
    loose.truncate(NAMED);
    Some(loose)
}

pub(super) fn certificates(path: &PathBuf) -> Result<usize, String> {
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    Ok(text.lines().filter(|line| line.trim() == "-----BEGIN CERTIFICATE-----").count())
}

pub(super) fn document(path: &Path) -> Document {
    let mut text = String::new();
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Document::Missing,
        Err(e) => return Document::Unreadable(e.to_string()),
    };
    if let Err(e) = file.take(DOCUMENT_BYTES as u64 + 1).read_to_string(&mut text) {
        return Document::Unreadable(e.to_string());
    }
    match spec::parse(&path.display().to_string(), &text) {
        Ok(document) => Document::Fine(document.instances.len()),
        Err(e) => Document::Wrong(e.to_string()),
    }
}
