//! (secret)
