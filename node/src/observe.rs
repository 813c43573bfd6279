//! (observe)
