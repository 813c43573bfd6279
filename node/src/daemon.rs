//! (daemon)
