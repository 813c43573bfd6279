//! Opens files that are the node's own, in `data_dir`: whoever has the node's uid may have put something else there.
//!
//! Room: `node`. Invariant: an open neither waits nor leads elsewhere, whatever stands at the path; what is opened is a regular
//! file.
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the file at `path` as `options` say; one that is made is the node's alone.
///
/// # Errors
/// `InvalidInput` when a link, a FIFO, a socket, a device or a directory is there; else the kernel's.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let other = || io::Error::new(ErrorKind::InvalidInput, "no regular file is there: remove what is");
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = options.mode(0o600).custom_flags(flags).open(path).map_err(|error| match error.raw_os_error() {
        // A link; a FIFO that nobody reads, or a socket; a directory.
        Some(libc::ELOOP | libc::ENXIO | libc::EISDIR) => other(),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Duration;

    /// The kind of error that opening it for reading, for writing and for appending gives; each within a moment.
    fn refused(path: &Path) -> Vec<Option<ErrorKind>> {
        let (send, receive) = mpsc::channel();
        let path: PathBuf = path.to_owned();
        std::thread::spawn(move || {
            let of = |options: &mut OpenOptions| open(&path, options).err().map(|error| error.kind());
            let mut options = OpenOptions::new();
            let reading = of(options.read(true));
            let writing = of(OpenOptions::new().write(true).create(true));
            let appending = of(OpenOptions::new().append(true).create(true));
            send.send(vec![reading, writing, appending])
        });
        receive.recv_timeout(Duration::from_secs(10)).expect("it waits at what is there")
    }

    #[test]
    fn a_fifo_a_link_a_socket_and_a_directory_are_refused_at_once_and_a_file_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "x").expect("written");
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        nix::unistd::mkfifo(&path("read-fifo"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        // With somebody at its other end the kernel opens it.
        let other_end = OpenOptions::new().read(true).write(true).open(path("read-fifo")).expect("opened");
        std::os::unix::fs::symlink(path("file"), path("link")).expect("linked");
        std::os::unix::fs::symlink(path("nothing"), path("dangling")).expect("linked");
        let _socket = UnixListener::bind(path("socket")).expect("bound");
        fs::create_dir(path("directory")).expect("made");
        for name in ["fifo", "read-fifo", "link", "dangling", "socket", "directory"] {
            assert_eq!(refused(&path(name)), [Some(ErrorKind::InvalidInput); 3], "{name}");
        }
        drop(other_end);
        assert!(!path("nothing").exists(), "the link led to a new file");
        assert_eq!(refused(&path("file")), [None; 3]);
        assert_eq!(refused(&path("new")), [Some(ErrorKind::NotFound), None, None]);
        assert_eq!(fs::metadata(path("new")).expect("made").permissions().mode() & 0o7777, 0o600);
    }
}
