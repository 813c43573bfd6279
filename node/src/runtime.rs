//! (runtime)
