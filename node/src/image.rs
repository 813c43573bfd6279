//! (image)
