//! The few libvirt calls that the `virt` crate lacks or wraps unsoundly: the event loop, callbacks, bulk states.
//!
//! Room: `node`; unsafe code of the crate is here and, for two calls about memory, in `daemon/memory.rs`. Invariants: the default event loop is registered before any
//! connection is opened and runs for the rest of the process; callbacks only store and notify, and never call libvirt
//! but for accessors that read the domain object itself; every callback is taken back before its connection is closed,
//! because libvirt holds a reference to the connection for each.
#![allow(unsafe_code, reason = "C library; each block says why it is sound")]
use super::domain_state;
use crate::runtime::DomainState;
use bcd_protocol::id::DomainUuid;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};
use virt::connect::Connect;
use virt::error::Error;
use virt::event;
use virt::sys;

/// Seconds between keepalive questions, and how many may stay unanswered: a hung daemon is given up after 15 s.
const KEEPALIVE: (i32, u32) = (5, 3);

/// What a connection tells between calls. Called on the event loop's thread: must not block and must not call libvirt.
pub(super) trait Hooks: Send + Sync + 'static {
    /// A domain was defined, undefined, started, stopped, suspended, resumed, crashed.
    fn lifecycle(&self, uuid: DomainUuid, redefined: bool);
    /// The connection is gone.
    fn closed(&self);
}

/// Registers the default event loop and runs it on a thread of its own; later calls do nothing.
pub(super) fn run_event_loop() -> Result<(), String> {
    static LOOP: OnceLock<Result<(), String>> = OnceLock::new();
    LOOP.get_or_init(|| {
        virt::error::clear_error_callback();
        event::event_register_default_impl().map_err(|e| format!("libvirt's event loop cannot be registered: {e}"))?;
        std::thread::Builder::new()
            .name("libvirt-events".to_owned())
            .spawn(|| {
                loop {
                    if let Err(error) = event::event_run_default_impl() {
                        tracing::warn!(%error, "libvirt's event loop failed a round");
                        std::thread::sleep(std::time::Duration::from_millis(100));
                    }
                }
            })
            .map(drop)
            .map_err(|e| format!("the thread for libvirt's event loop cannot be started: {e}"))
    })
    .clone()
}

/// One read-only connection with its callbacks.
pub(super) struct Session {
    connect: Connect,
    lifecycle: c_int,
    close_registered: bool,
}

/// One domain of the bulk call.
pub(super) struct Row<'a> {
    pub(super) uuid: DomainUuid,
    pub(super) name: &'a [u8],
    pub(super) state: DomainState,
    pub(super) boot: Option<u32>,
}

/// What callbacks are given. libvirt owns one box per callback and frees it with [`free_hooks`].
struct Opaque(Arc<dyn Hooks>);

extern "C" fn free_hooks(opaque: *mut c_void) {
    // SAFETY: `opaque` came from `Box::into_raw` of a `Box<Opaque>` at registration, and libvirt calls this once, after
    // the last call of the callback.
    drop(unsafe { Box::from_raw(opaque.cast::<Opaque>()) });
}

extern "C" fn on_lifecycle(
    _connect: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    event: c_int,
    _detail: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: `opaque` is the box given at registration, alive until `free_hooks`.
    let hooks = unsafe { &*opaque.cast::<Opaque>() };
    // SAFETY: libvirt keeps `domain` alive for the duration of the callback.
    if let Some(uuid) = unsafe { uuid_of(domain) } {
        let event = event.cast_unsigned();
        let redefined = event == sys::VIR_DOMAIN_EVENT_DEFINED || event == sys::VIR_DOMAIN_EVENT_UNDEFINED;
        hooks.0.lifecycle(uuid, redefined);
    }
    0
}

extern "C" fn on_close(_connect: sys::virConnectPtr, _reason: c_int, opaque: *mut c_void) {
    // SAFETY: as in `on_lifecycle`.
    let hooks = unsafe { &*opaque.cast::<Opaque>() };
    hooks.0.closed();
}

impl Session {
    /// Opens a read-only connection, keeps it alive and listens on it. [`run_event_loop`] must have succeeded.
    pub(super) fn open(uri: &str, hooks: &Arc<dyn Hooks>) -> Result<Self, Error> {
        let connect = Connect::open_read_only(Some(uri))?;
        connect.set_keep_alive(KEEPALIVE.0, KEEPALIVE.1)?;
        let mut session = Self { connect, lifecycle: -1, close_registered: false };
        session.listen(hooks)?;
        Ok(session)
    }

    fn listen(&mut self, hooks: &Arc<dyn Hooks>) -> Result<(), Error> {
        let opaque = Box::into_raw(Box::new(Opaque(Arc::clone(hooks))));
        // SAFETY: the connection is open; `on_close` has the type of a close callback and `opaque` is a box that
        // `free_hooks` frees.
        let outcome = unsafe {
            sys::virConnectRegisterCloseCallback(self.connect.as_ptr(), Some(on_close), opaque.cast(), Some(free_hooks))
        };
        if outcome < 0 {
            let error = Error::last_error();
            // SAFETY: a refused registration leaves the box with us.
            drop(unsafe { Box::from_raw(opaque) });
            return Err(error);
        }
        self.close_registered = true;
        let opaque = Box::into_raw(Box::new(Opaque(Arc::clone(hooks))));
        // SAFETY: libvirt calls the callback of a lifecycle event with exactly the arguments of `on_lifecycle`; its own
        // macro VIR_DOMAIN_EVENT_CALLBACK is this cast.
        let callback = unsafe {
            std::mem::transmute::<
                extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, c_int, c_int, *mut c_void) -> c_int,
                unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *mut c_void),
            >(on_lifecycle)
        };
        // SAFETY: the connection is open, a null domain means all domains, `opaque` is a box that `free_hooks` frees.
        let id = unsafe {
            sys::virConnectDomainEventRegisterAny(
                self.connect.as_ptr(),
                std::ptr::null_mut(),
                sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE.cast_signed(),
                Some(callback),
                opaque.cast(),
                Some(free_hooks),
            )
        };
        if id < 0 {
            let error = Error::last_error();
            // SAFETY: a refused registration leaves the box with us.
            drop(unsafe { Box::from_raw(opaque) });
            return Err(error);
        }
        self.lifecycle = id;
        Ok(())
    }

    /// The connection, for calls that `virt` wraps soundly.
    pub(super) fn connect(&self) -> &Connect {
        &self.connect
    }

    /// Makes the bulk call and lets go of its answer: what a pass is measured against.
    pub(super) fn bulk_call(&self) -> Result<usize, Error> {
        self.stats().map(|(_, count)| count)
    }

    fn stats(&self) -> Result<(Stats, usize), Error> {
        let mut first: *mut sys::virDomainStatsRecordPtr = std::ptr::null_mut();
        // SAFETY: the connection is open; `first` is written with a list that `Stats` frees, or left alone on error.
        let count = unsafe {
            sys::virConnectGetAllDomainStats(self.connect.as_ptr(), sys::VIR_DOMAIN_STATS_STATE, &raw mut first, 0)
        };
        let count = usize::try_from(count).map_err(|_| Error::last_error())?;
        Ok((Stats(first), count))
    }

    /// Visits every domain: one call to the daemon, nothing allocated per domain on this side but by libvirt's own
    /// decoder.
    pub(super) fn for_each_domain(&self, mut visit: impl FnMut(Row<'_>)) -> Result<usize, Error> {
        let (stats, count) = self.stats()?;
        for index in 0..count {
            // SAFETY: the list has `count` entries, each a valid record until `stats` is dropped.
            let record = unsafe { &**stats.0.add(index) };
            // SAFETY: the record holds a reference to its domain; its parameters are `nparams` initialised values.
            unsafe {
                if let Some(uuid) = uuid_of(record.dom) {
                    let name = sys::virDomainGetName(record.dom);
                    let name = if name.is_null() { &[] } else { CStr::from_ptr(name).to_bytes() };
                    let (state, reason) = state_of(record.params, record.nparams);
                    let boot = u32::try_from(sys::virDomainGetID(record.dom).cast_signed()).ok();
                    visit(Row { uuid, name, state: domain_state(state, reason), boot });
                }
            }
        }
        Ok(count)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Errors here mean that the daemon is gone: libvirt has dropped its side of the registration all the same.
        if self.lifecycle >= 0 {
            // SAFETY: the connection object is alive and the id is one that it gave.
            unsafe { sys::virConnectDomainEventDeregisterAny(self.connect.as_ptr(), self.lifecycle) };
        }
        if self.close_registered {
            // SAFETY: as above; `on_close` is the callback that was registered.
            unsafe { sys::virConnectUnregisterCloseCallback(self.connect.as_ptr(), Some(on_close)) };
        }
    }
}

/// A list of records, freed on drop.
struct Stats(*mut sys::virDomainStatsRecordPtr);

impl Drop for Stats {
    fn drop(&mut self) {
        // SAFETY: the list came from virConnectGetAllDomainStats, which succeeded, and is freed once.
        unsafe { sys::virDomainStatsRecordListFree(self.0) };
    }
}

/// The UUID of a domain object; no call to the daemon.
///
/// # Safety
/// `domain` must be a valid domain object.
unsafe fn uuid_of(domain: sys::virDomainPtr) -> Option<DomainUuid> {
    let mut bytes = [0u8; sys::VIR_UUID_BUFLEN as usize];
    // SAFETY: the caller's promise; the buffer has VIR_UUID_BUFLEN bytes.
    let outcome = unsafe { sys::virDomainGetUUID(domain, bytes.as_mut_ptr()) };
    (outcome == 0).then(|| DomainUuid::from_bytes(bytes))
}

/// State and reason among a record's parameters; -1 for one that is not there.
///
/// # Safety
/// `params` must point at `count` initialised parameters, or be null with `count` 0.
unsafe fn state_of(params: sys::virTypedParameterPtr, count: c_int) -> (c_int, c_int) {
    let mut found = (-1, -1);
    let count = usize::try_from(count).unwrap_or_default();
    if params.is_null() {
        return found;
    }
    // SAFETY: the caller's promise.
    for param in unsafe { std::slice::from_raw_parts(params, count) } {
        if param.type_ != sys::VIR_TYPED_PARAM_INT.cast_signed() {
            continue;
        }
        // SAFETY: the type tag says which member of the union is set.
        let value = unsafe { param.value.i };
        if is_field(&param.field, b"state.state") {
            found.0 = value;
        } else if is_field(&param.field, b"state.reason") {
            found.1 = value;
        }
    }
    found
}

fn is_field(field: &[c_char], name: &[u8]) -> bool {
    field.len() > name.len()
        && field.iter().zip(name).all(|(have, want)| have.cast_unsigned() == *want)
        && field.get(name.len()).is_some_and(|end| *end == 0)
}
