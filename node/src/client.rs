//! (client)
