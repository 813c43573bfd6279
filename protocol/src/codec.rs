//! One datagram to one message and back: the only file that knows the encoding.
//!
//! Room: `protocol`. bincode 2.0.1 with variable-length integers, little endian, and a hard limit: without one, a
//! ten-byte message can make it reserve gigabytes. A message is the whole datagram, and one meaning has one spelling:
//! what [`decode`] accepts is exactly what [`encode`] writes, byte for byte. bincode itself takes an integer in any
//! width and ignores what follows, so the decoded value is written once more against the datagram, without a copy.
//! The bytes are pinned by golden vectors in `codec/tests`, so that another codec can take this one's place in this
//! file alone (bincode is no longer maintained, RUSTSEC-2025-0141; docs/adr/0001-bincode.md has the reason).
use crate::limits::MESSAGE_BYTES;
use bincode::enc::write::Writer;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(test)]
mod tests;

/// Why a datagram is not a message. The connection it came on is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Nothing in it.
    #[error("the datagram is empty")]
    Empty,
    /// Longer than [`MESSAGE_BYTES`].
    #[error("the datagram has {0} bytes: the most is {MESSAGE_BYTES}")]
    Oversized(usize),
    /// Not of the format: cut, an unknown tag, a value out of its bounds.
    #[error("the datagram is malformed: {0}")]
    Malformed(String),
    /// A message and something behind it.
    #[error("the datagram has {0} bytes behind its message")]
    Trailing(usize),
    /// A message, but not in the bytes that [`encode`] writes for it: an integer wider than it needs to be.
    #[error("the datagram is not the message's only spelling: {0} bytes from its end differ")]
    NotCanonical(usize),
}

/// Why a message cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// It would not fit a datagram.
    #[error("the message encodes to {0} bytes: the most is {MESSAGE_BYTES}")]
    Oversized(usize),
    /// The encoder refused.
    #[error("the message cannot be encoded: {0}")]
    Refused(String),
}

fn settings() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MESSAGE_BYTES>()
}

/// Keeps what fits a datagram and counts the rest.
#[derive(Default)]
struct Bounded {
    kept: Vec<u8>,
    total: usize,
}

impl Writer for Bounded {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.total = self.total.saturating_add(bytes.len());
        if self.total <= MESSAGE_BYTES {
            self.kept.extend_from_slice(bytes);
        }
        Ok(())
    }
}

/// Takes from the front of a datagram what is written; refuses at the first byte that differs.
struct Same<'a> {
    rest: &'a [u8],
}

impl Writer for Same<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.rest = self.rest.strip_prefix(bytes).ok_or(bincode::error::EncodeError::Other("another spelling"))?;
        Ok(())
    }
}

/// Encodes one message as one datagram.
///
/// # Errors
/// [`EncodeError`] when it is larger than [`MESSAGE_BYTES`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, EncodeError> {
    let mut out = Bounded::default();
    bincode::serde::encode_into_writer(message, &mut out, settings())
        .map_err(|e| EncodeError::Refused(e.to_string()))?;
    if out.total > MESSAGE_BYTES { Err(EncodeError::Oversized(out.total)) } else { Ok(out.kept) }
}

/// Decodes one datagram as one message.
///
/// # Errors
/// [`DecodeError`] for anything that [`encode`] of some message would not have produced, to the byte.
pub fn decode<T: DeserializeOwned + Serialize>(datagram: &[u8]) -> Result<T, DecodeError> {
    if datagram.is_empty() {
        return Err(DecodeError::Empty);
    }
    if datagram.len() > MESSAGE_BYTES {
        return Err(DecodeError::Oversized(datagram.len()));
    }
    let (message, consumed) = bincode::serde::borrow_decode_from_slice::<T, _>(datagram, settings())
        .map_err(|e| DecodeError::Malformed(e.to_string()))?;
    let trailing = datagram.len().saturating_sub(consumed);
    if trailing != 0 {
        return Err(DecodeError::Trailing(trailing));
    }
    let mut same = Same { rest: datagram };
    match (bincode::serde::encode_into_writer(&message, &mut same, settings()), same.rest) {
        (Ok(()), []) => Ok(message),
        (Ok(()) | Err(_), rest) => Err(DecodeError::NotCanonical(rest.len())),
    }
}
