//! (console)
