//! Keeps the node's resident memory to what it uses.
//!
//! Room: `node`. Called while there is one thread.
use bcd_confine::memory;

/// The allocator's arenas: it would make one for each thread that happens to allocate while another does, and never give
/// it back.
const ARENAS: i32 = 2;
/// From this size on, bytes, a freed block goes back to the kernel. It is glibc's first value; left alone it grows, and then
/// a status of a thousand instances, once made into JSON, would stay resident for ever.
const MAPPED_FROM: i32 = 128 * 1024;

/// Sets the allocator, and gives back the pages that only starting up needed.
pub(super) fn settle() {
    memory::bound_allocator(ARENAS, Some(MAPPED_FROM));
    // Has the libraries behind libvirt's client set themselves up now: a local connection needs none of that again.
    let libvirt = virt::connect::Connect::version();
    tracing::debug!(?libvirt, "libvirt's client is set up");
    match memory::give_back_startup_pages() {
        Ok(bytes) => tracing::debug!(bytes, "pages of libraries given back"),
        Err(error) => tracing::debug!(%error, "pages of libraries stay"),
    }
}
