//! The tenant image check: is this file what it is declared to be, and safe to give to a hypervisor?
//!
//! Room: `node`. Blocking; bounded in time and memory whatever the file says (a second and 64 MiB). It opens nothing
//! that the file names. The digest says that these are the bytes that were asked for; this says that they are a disk.
use super::bytes::FileBytes;
use super::qcow2::{self, Header, HeaderError, Lie};
use super::{second, sniff};
use bcd_protocol::definition::ImageFormat;
use bcd_protocol::limits;
use std::fs::File;
use std::io;

#[cfg(test)]
mod tests;

/// Why an image is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Rejection {
    /// It is something else.
    #[error("it is declared as {declared} and looks like {found}")]
    OtherContent {
        /// The format in the spec.
        declared: ImageFormat,
        /// What it looks like.
        found: &'static str,
    },
    /// Its header breaks a rule.
    #[error(transparent)]
    Lie(#[from] Lie),
    /// A raw disk that is no whole number of sectors.
    #[error("a raw disk of {0} bytes is no whole number of 512-byte sectors")]
    Sectors(u64),
    /// A raw disk that is larger than any disk here may be.
    #[error("a raw disk of {0} bytes is larger than the most, {most} bytes", most = limits::DISK_MAX)]
    TooLarge(u64),
    /// The two readers do not see the same disk.
    #[error("a second reader sees a disk of {second} bytes where the header says {first}")]
    Disagreement {
        /// The first reader's size.
        first: u64,
        /// The second reader's.
        second: u64,
    },
    /// The second reader refuses it.
    #[error("a second reader refuses it")]
    Second(#[source] io::Error),
}

/// A refusal, or a file that could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The image is refused.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The file could not be read.
    #[error("reading the image failed")]
    Read(#[from] io::Error),
}

impl From<HeaderError> for CheckError {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Lie(lie) => Self::Rejected(lie.into()),
            HeaderError::Read(error) => Self::Read(error),
        }
    }
}

/// Checks a whole image file; answers the size of its disk, bytes.
pub(crate) fn tenant(file: &File, declared: ImageFormat) -> Result<u64, CheckError> {
    let bytes = FileBytes::new(file)?;
    match declared {
        ImageFormat::Raw => {
            if let Some(found) = sniff::looks_like(&bytes)? {
                return Err(Rejection::OtherContent { declared, found }.into());
            }
            raw_size(file)
        }
        ImageFormat::Qcow2 => {
            let header = qcow2_header(&bytes)?;
            header.tenant().map_err(Rejection::from)?;
            qcow2::check_tables(&header, &bytes)?;
            let first = header.virtual_bytes;
            let second = second::virtual_bytes(file).map_err(Rejection::Second)?;
            if first != second {
                return Err(Rejection::Disagreement { first, second }.into());
            }
            Ok(first)
        }
    }
}

/// The size of the disk in an image that was checked before, bytes. Reads the header alone.
pub(crate) fn known_size(file: &File, format: ImageFormat) -> Result<u64, CheckError> {
    match format {
        ImageFormat::Raw => raw_size(file),
        ImageFormat::Qcow2 => {
            let header = qcow2_header(&FileBytes::new(file)?)?;
            header.tenant().map_err(Rejection::from)?;
            Ok(header.virtual_bytes)
        }
    }
}

fn raw_size(file: &File) -> Result<u64, CheckError> {
    let length = file.metadata()?.len();
    if length == 0 || !length.is_multiple_of(limits::SECTOR) {
        Err(Rejection::Sectors(length).into())
    } else if length > limits::DISK_MAX {
        Err(Rejection::TooLarge(length).into())
    } else {
        Ok(length)
    }
}

fn qcow2_header(bytes: &FileBytes<'_>) -> Result<Header, CheckError> {
    let magic: [u8; 8] = super::bytes::window(bytes, 0)?;
    let is_other = !magic.starts_with(&qcow2::MAGIC) || magic.ends_with(&1u32.to_be_bytes());
    if is_other {
        let found = sniff::looks_like(bytes)?.unwrap_or("a raw disk or nothing known");
        return Err(Rejection::OtherContent { declared: ImageFormat::Qcow2, found }.into());
    }
    Ok(Header::read(bytes)?)
}
