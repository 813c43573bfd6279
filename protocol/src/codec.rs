//! One datagram to one message and back: the only file that knows the encoding.
//!
//! Room: `protocol`. bincode 2.0.1 with variable-length integers, little endian, and a hard limit: without one, a
//! ten-byte message can make it reserve gigabytes. A message is the whole datagram; trailing bytes are refused, so one
//! meaning has one length. The bytes are pinned by golden vectors in `codec/tests.rs`, so that another codec can take
//! this one's place in this file alone (bincode is no longer maintained, RUSTSEC-2025-0141; docs/adr has the reason).
use crate::limits::MESSAGE_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(test)]
mod tests;

/// Why a datagram is not a message. The connection it came on is closed.
#[derive(Debug, thiserror::Error)]
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
}

/// Why a message cannot be sent.
#[derive(Debug, thiserror::Error)]
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

/// Encodes one message as one datagram.
///
/// # Errors
/// [`EncodeError`] when it is larger than [`MESSAGE_BYTES`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, EncodeError> {
    let bytes = bincode::serde::encode_to_vec(message, settings()).map_err(|e| EncodeError::Refused(e.to_string()))?;
    if bytes.len() > MESSAGE_BYTES { Err(EncodeError::Oversized(bytes.len())) } else { Ok(bytes) }
}

/// Decodes one datagram as one message.
///
/// # Errors
/// [`DecodeError`] for anything that [`encode`] of some message would not have produced in length and form.
pub fn decode<T: DeserializeOwned>(datagram: &[u8]) -> Result<T, DecodeError> {
    if datagram.is_empty() {
        return Err(DecodeError::Empty);
    }
    if datagram.len() > MESSAGE_BYTES {
        return Err(DecodeError::Oversized(datagram.len()));
    }
    let (message, consumed) =
        bincode::serde::decode_from_slice(datagram, settings()).map_err(|e| DecodeError::Malformed(e.to_string()))?;
    match datagram.len().checked_sub(consumed) {
        Some(0) => Ok(message),
        rest => Err(DecodeError::Trailing(rest.unwrap_or_default())),
    }
}
