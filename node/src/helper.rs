//! (helper)
