//! (converge)
