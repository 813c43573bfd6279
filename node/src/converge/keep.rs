//! The document in force, on disk: kept across restarts.
//!
//! Room: `node`. Blocking functions. Invariant: the file holds a whole document at every moment (written beside it,
//! synced, renamed, directory synced).
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::own_file;
use crate::spec::{self, NodeSpec};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Stores `spec` as the document in force.
pub(super) fn store(layout: &Layout, spec: &NodeSpec) -> Result<(), Fault> {
    let path = layout.accepted_spec();
    let fault = |error: io::Error| {
        let sentence = format!("the document cannot be stored at {}: see that the disk is not full", path.display());
        Fault::because(FaultKind::Unavailable, sentence, error)
    };
    let bytes = serde_json::to_vec(spec)
        .map_err(|e| Fault::because(FaultKind::Internal, "the document cannot be written as JSON", e))?;
    write(&layout.node(), &path, &bytes).map_err(fault)
}

fn write(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let part = path.with_extension("part");
    let mut file = own_file::open(&part, OpenOptions::new().write(true).create(true).truncate(true))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    File::open(directory)?.sync_all()
}

fn read(path: &Path) -> io::Result<String> {
    io::read_to_string(own_file::open(path, OpenOptions::new().read(true))?)
}

/// The document that was in force when the node stopped last, if any. Blocking.
///
/// # Errors
/// `Unavailable` when it cannot be read, `InvalidSpec` when it is no document: the node must not go on without it, or
/// it would take every instance for deleted or do nothing without a word.
pub fn load(layout: &Layout) -> Result<Option<NodeSpec>, Fault> {
    let path = layout.accepted_spec();
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let sentence = format!("the document in force cannot be read at {}", path.display());
            return Err(Fault::because(FaultKind::Unavailable, sentence, error));
        }
    };
    let spec = spec::parse_kept(&path.display().to_string(), &text).map_err(|error| {
        let sentence =
            "the document in force is damaged: put it back or remove the file, then apply the document again";
        Fault::because(FaultKind::InvalidSpec, sentence, error)
    })?;
    Ok(Some(spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(dir.path());
        (dir, layout)
    }

    #[test]
    fn a_stored_document_is_loaded_as_it_was() {
        let (_dir, layout) = layout();
        assert_eq!(load(&layout).expect("nothing there"), None);
        let spec = spec::parse("a.toml", "[[holds]]\nid = \"h\"\nmemory_bytes = 1073741824\n").expect("a document");
        store(&layout, &spec).expect("stored");
        assert_eq!(load(&layout).expect("loaded"), Some(spec));
        store(&layout, &NodeSpec::default()).expect("stored over it");
        assert_eq!(load(&layout).expect("loaded"), Some(NodeSpec::default()));
    }

    #[test]
    fn a_damaged_document_is_an_error_and_never_an_empty_one() {
        let (_dir, layout) = layout();
        store(&layout, &NodeSpec::default()).expect("stored");
        for damage in ["", "{\"instances\":", "{\"instance\":[]}"] {
            fs::write(layout.accepted_spec(), damage).expect("damaged");
            assert_eq!(load(&layout).expect_err(damage).kind(), FaultKind::InvalidSpec);
        }
    }
}
