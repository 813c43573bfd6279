//! User data from the secret directory: one file per allocation, named by it.
//!
//! Room: `node`. User data is never logged.
use crate::converge::UserDataSource;
use crate::fault::{Fault, FaultKind};
use crate::seed::UserData;
use bcd_protocol::id::AllocationId;
use futures_util::future::BoxFuture;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most bytes of user data: what cloud providers take at the most is 64 KiB.
const MOST: u64 = 1024 * 1024;

/// The secret directory.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl UserDataSource for Directory {
    fn user_data<'a>(&'a self, allocation: &'a AllocationId) -> BoxFuture<'a, Result<Option<UserData>, Fault>> {
        let path = self.0.join(allocation.as_str());
        Box::pin(async move {
            tokio::task::spawn_blocking(move || read(&path))
                .await
                .map_err(|e| Fault::because(FaultKind::Internal, "user data could not be read", e))?
        })
    }
}

fn read(path: &Path) -> Result<Option<UserData>, Fault> {
    let fault =
        |error| Fault::because(FaultKind::Unavailable, format!("user data {} cannot be read", path.display()), error);
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error)),
    };
    let meta = file.metadata().map_err(fault)?;
    let refused = |what: &str| Fault::new(FaultKind::Denied, format!("user data {} {what}", path.display()));
    if !meta.is_file() {
        return Err(refused("is no regular file"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(refused("may be read by others: chmod 600 it"));
    }
    if meta.len() > MOST {
        return Err(refused("is larger than 1 MiB"));
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes).map_err(fault)?;
    Ok(Some(UserData::new(bytes)))
}
