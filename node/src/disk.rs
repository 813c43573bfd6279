//! (disk)
