//! (share)
