//! (doctor)
