//! The program that makes the ISO, run as a child that gets nothing but its arguments.
//!
//! Room: `node`.
use crate::fault::{Fault, FaultKind};
use bcd_protocol::reply::Sentence;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Semaphore;

/// Where programs are looked for: a PATH from outside must not choose what runs.
const DIRECTORIES: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];
/// A seed has a few KiB: a tool that takes this long hangs.
const DEADLINE: Duration = Duration::from_secs(30);
/// Tools that run at once; more wait. The unit's limit on tasks leaves room for them.
pub(super) const AT_ONCE: usize = 8;
static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);
/// Most bytes kept of what the tool says.
const SAYS: u64 = 4096;

/// A program that makes the ISO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `genisoimage`.
    Genisoimage,
    /// `xorriso -as mkisofs`.
    Xorriso,
}

/// The tool that would be used on this host, if any.
#[must_use]
pub fn available_tool() -> Option<Tool> {
    [Tool::Genisoimage, Tool::Xorriso].into_iter().find(|tool| tool.path().is_some())
}

impl Tool {
    /// The program's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Genisoimage => "genisoimage",
            Self::Xorriso => "xorriso",
        }
    }

    /// Where the program lies, if it does.
    #[must_use]
    pub fn path(self) -> Option<PathBuf> {
        DIRECTORIES.iter().map(|directory| Path::new(directory).join(self.name())).find(|path| path.is_file())
    }

    /// What comes before the arguments that both understand. xorriso would read start-up files otherwise.
    fn first_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Genisoimage => &["-input-charset", "utf-8"],
            Self::Xorriso => &["-no_rc", "-as", "mkisofs"],
        }
    }

    /// Makes the ISO `output` labelled `label` of the files `names`, all in `directory`, with Rock Ridge and Joliet names.
    ///
    /// # Errors
    /// As [`super::write`].
    pub(super) async fn run(self, directory: &Path, label: &str, output: &str, names: &[&str]) -> Result<(), Fault> {
        let name = self.name();
        let program = self
            .path()
            .ok_or_else(|| Fault::new(FaultKind::Unsupported, format!("{name} is not there any more: install it")))?;
        let mut command = Command::new(program);
        command.args(self.first_arguments());
        command.args(["-quiet", "-volid", label, "-joliet", "-rational-rock", "-output", output]).args(names);
        run(name, command.current_dir(directory), DEADLINE).await
    }
}

/// Runs a tool to its end, or ends it at the deadline, which counts from its start and not while it waits for its turn.
pub(super) async fn run(name: &str, command: &mut Command, deadline: Duration) -> Result<(), Fault> {
    let failed = |e| Fault::because(FaultKind::Internal, format!("{name} cannot be run to make the seed"), e);
    let _place = PLACES.acquire().await.map_err(|e| Fault::because(FaultKind::Internal, "no seed can be made", e))?;
    command.env_clear().env("LC_ALL", "C.UTF-8");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let stderr = child.stderr.take();
    let end = async {
        let mut says = Vec::new();
        if let Some(mut stderr) = stderr {
            (&mut stderr).take(SAYS).read_to_end(&mut says).await?;
            // A tool that says more must not wait for us.
            tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
        }
        Ok((child.wait().await?, says))
    };
    let Ok(ended) = tokio::time::timeout(deadline, end).await else {
        let sentence = format!("{name} did not make the seed within {} s and was ended", deadline.as_secs());
        return Err(Fault::new(FaultKind::Timeout, sentence));
    };
    let (status, says) = ended.map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let says = String::from_utf8_lossy(&says);
    let full = says.contains("No space left on device");
    let kind = if full { FaultKind::ResourcesExhausted } else { FaultKind::Internal };
    Err(Fault::new(kind, format!("{name} failed to make the seed ({status}): {}", Sentence::new(says.trim()))))
}
