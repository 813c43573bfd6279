//! The NoCloud seed: an ISO labelled `cidata` that tells cloud-init who it is.
//!
//! Room: `node`. Invariant: user data is never logged, and lies nowhere but in `seed.iso` once this is done: the scratch
//! directory is the node's alone, its user data is overwritten and all of it removed, whatever happens. Both `user-data`
//! and `meta-data` are always there: cloud-init skips a seed that lacks one.
use crate::disk::HALF_MADE;
use crate::fault::{Fault, FaultKind};
use crate::image::storage_fault;
use crate::layout::Layout;
use crate::secret::Secret;
use crate::spec::{Hostname, NicSpec};
use bcd_protocol::id::InstanceId;
use bcd_protocol::net::MacAddress;
use ipnet::IpNet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zeroize::Zeroizing;

mod network;
mod tool;

#[cfg(test)]
mod tests;

pub use tool::{Tool, available_tool};

/// The label that cloud-init looks for.
const LABEL: &str = "cidata";
/// What a guest without user data is given: a cloud-config that asks for nothing.
const NO_USER_DATA: &[u8] = b"#cloud-config\n{}\n";
/// The ISO's name in the scratch directory.
const ISO: &str = "iso";

/// What a guest is told about one NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedNic {
    /// The MAC it is matched by.
    pub mac: MacAddress,
    /// Static addresses with their prefix lengths; none: DHCP.
    pub addresses: Vec<IpNet>,
    /// The default route's gateway.
    pub gateway: Option<IpAddr>,
    /// Name servers.
    pub nameservers: Vec<IpAddr>,
}

impl From<&NicSpec> for SeedNic {
    fn from(nic: &NicSpec) -> Self {
        Self {
            mac: nic.mac,
            addresses: nic.addresses.to_vec(),
            gateway: nic.gateway,
            nameservers: nic.nameservers.iter().copied().collect(),
        }
    }
}

/// Everything a seed is made of.
#[derive(Debug)]
pub struct SeedInput {
    /// The instance: `instance-id`.
    pub instance: InstanceId,
    /// The host name: `local-hostname`.
    pub hostname: Hostname,
    /// The NICs in order.
    pub nics: Vec<SeedNic>,
    /// User data; none: an empty cloud-config.
    pub user_data: Option<Secret>,
}

/// Writes the instance's seed (0600) into its directory; replaces an earlier one, whose ACL entries go with it.
///
/// # Errors
/// `Unsupported` when the host has no tool that makes a seed, `Timeout` when the tool takes too long,
/// `ResourcesExhausted` for a full disk.
pub async fn write(layout: &Layout, input: &SeedInput) -> Result<(), Fault> {
    let tool = available_tool().ok_or_else(|| {
        let sentence = "this host has no tool that makes seeds: install genisoimage or xorriso";
        Fault::new(FaultKind::Unsupported, sentence)
    })?;
    write_with(tool, layout, input).await
}

async fn write_with(tool: Tool, layout: &Layout, input: &SeedInput) -> Result<(), Fault> {
    let (directory, seed) = (layout.instance(&input.instance), layout.seed(&input.instance));
    let files = files(input);
    let scratch = blocking(move || Scratch::fill(&directory, files)).await?;
    tool.run(scratch.directory.path(), LABEL, ISO, &scratch.names).await?;
    blocking(move || scratch.publish(&seed).map_err(|e| storage_fault(&seed, e))).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Fault::because(FaultKind::Internal, "writing the seed failed", e))?
}

/// A file of the seed: name and content, whose memory is cleared at the end.
type SeedFile = (&'static str, Zeroizing<Vec<u8>>);

/// A directory of our own with the files that go into the ISO.
#[derive(Debug)]
struct Scratch {
    directory: TempDir,
    names: Vec<&'static str>,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The directory removes itself; the secret's blocks are overwritten first.
        if let Err(error) = overwrite(&self.directory.path().join("user-data")) {
            tracing::warn!(%error, "a seed's scratch file cannot be overwritten");
        }
    }
}

fn overwrite(path: &Path) -> io::Result<()> {
    let file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let zeroes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or_default()];
    file.write_all_at(&zeroes, 0)
}

impl Scratch {
    fn fill(directory: &Path, files: Vec<SeedFile>) -> Result<Self, Fault> {
        let scratch = tempfile::Builder::new()
            .prefix(HALF_MADE)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(directory)
            .map_err(|e| storage_fault(directory, e))?;
        let mut scratch = Self { directory: scratch, names: Vec::new() };
        for (name, content) in files {
            let path = scratch.directory.path().join(name);
            scratch.names.push(name);
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            made.and_then(|mut file| file.write_all(&content)).map_err(|e| storage_fault(&path, e))?;
        }
        Ok(scratch)
    }

    /// Gives the ISO its final name, after it was seen to be one.
    fn publish(self, seed: &Path) -> io::Result<()> {
        let iso: PathBuf = self.directory.path().join(ISO);
        let file = File::open(&iso)?;
        // The primary volume descriptor: sector 16; its identifier, and the label from its 40th byte on.
        let mut descriptor = [0; 72];
        file.read_exact_at(&mut descriptor, 16 * 2048)?;
        let label = descriptor.get(40..).unwrap_or_default().trim_ascii_end();
        if descriptor.get(1..6) != Some(b"CD001") || label != LABEL.as_bytes() {
            return Err(io::Error::other("the tool made something that is no seed"));
        }
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.sync_all()?;
        fs::rename(&iso, seed)?;
        seed.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }
}

/// The files of the seed by name. What is structured is written as JSON, which every YAML reader takes, so that no value
/// can be read as anything but itself.
fn files(input: &SeedInput) -> Vec<SeedFile> {
    let meta = serde_json::json!({ "instance-id": input.instance, "local-hostname": input.hostname });
    let user_data = input.user_data.as_ref().map_or(NO_USER_DATA, Secret::expose);
    let mut files = vec![
        ("user-data", Zeroizing::new(user_data.to_vec())),
        ("meta-data", Zeroizing::new(format!("{meta:#}\n").into_bytes())),
    ];
    if let Some(config) = network::config(&input.nics) {
        files.push(("network-config", Zeroizing::new(format!("{config:#}\n").into_bytes())));
    }
    files
}
