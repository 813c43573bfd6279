//! (seed)
