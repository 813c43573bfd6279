//! A datagram with a false length reserves no memory for it.
//!
//! Alone in its test binary: the allocator counts for the whole process. The crate itself forbids unsafe code; the
//! counting allocator has it here.
use bcd_protocol::codec::{decode, encode};
use bcd_protocol::id::{DomainUuid, GuestUid};
use bcd_protocol::limits::MESSAGE_BYTES;
use bcd_protocol::reply::{Defined, Reply, ReplyMessage};
use bcd_protocol::request::{Request, RequestId, RequestMessage};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: usize) {
    // A thread that is ending has no counter any more.
    let _ = ASKED.try_with(|asked| asked.set(asked.get().saturating_add(bytes)));
}

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that this thread asked for while `work` ran.
fn asked_by<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ASKED.get();
    let result = work();
    (result, ASKED.get() - before)
}

/// Lengths that a datagram may claim, as its integers write them.
fn lengths() -> Vec<Vec<u8>> {
    let mut all = vec![vec![250], vec![0xfb, 0xff, 0xff]];
    all.extend([1 << 16, 1 << 20, u32::MAX].map(|n: u32| [&[0xfc_u8][..], &n.to_le_bytes()].concat()));
    all.extend([1 << 32, i64::MAX as u64, u64::MAX].map(|n: u64| [&[0xfd_u8][..], &n.to_le_bytes()].concat()));
    all
}

#[test]
fn the_counter_counts() {
    let (kept, asked) = asked_by(|| Vec::<u8>::with_capacity(100_000));
    assert!(asked >= 100_000, "{asked} bytes for {}", kept.capacity());
    let (_, asked) = asked_by(|| vec![0_u8; 50_000]);
    assert!(asked >= 50_000, "{asked}");
}

#[test]
fn a_false_length_reserves_nothing() {
    // A definition with everything before its list of NICs, and a NIC with everything before its addresses.
    let mut before_nics = vec![1, 3, 1, b'a', 1, b'a', 1, 0xfc, 0, 0, 0, 0x20, 0xfc, 0, 0, 0, 0x40];
    before_nics.extend([0; 32]);
    before_nics.push(0);
    let before_addresses = [&before_nics[..], &[1, 2, b'b', b'r', 0x52, 0x54, 0, 0, 0, 1]].concat();
    let requests: [(&str, &[u8]); 5] = [
        ("an instance id", &[1, 4]),
        ("an optional instance id", &[1, 1, 1]),
        ("an allocation", &[1, 3, 1, b'a']),
        ("NICs", &before_nics),
        ("addresses", &before_addresses),
    ];
    for (what, start) in requests {
        for length in lengths() {
            for filler in [0, 300] {
                let datagram = [start, &length, &vec![0xff; filler]].concat();
                let (result, asked) = asked_by(|| decode::<RequestMessage>(&datagram));
                result.expect_err(what);
                assert!(asked < 4_096, "{what}, {length:?}: {asked} bytes for a datagram of {}", datagram.len());
            }
        }
    }
    let replies: [(&str, &[u8]); 4] =
        [("a sentence", &[1, 0, 1]), ("records", &[1, 1, 0, 0]), ("XML", &[1, 2]), ("a rule", &[1, 6])];
    for (what, start) in replies {
        for length in lengths() {
            for filler in [0, 300] {
                let datagram = [start, &length, &vec![0xff; filler]].concat();
                let (result, asked) = asked_by(|| decode::<ReplyMessage>(&datagram));
                result.expect_err(what);
                assert!(asked < 8_192, "{what}, {length:?}: {asked} bytes for a datagram of {}", datagram.len());
            }
        }
    }
}

#[test]
fn a_full_datagram_of_junk_costs_no_more_than_a_few_of_itself() {
    for byte in 0..=255 {
        let datagram = vec![byte; MESSAGE_BYTES];
        let (_, asked) = asked_by(|| {
            decode::<RequestMessage>(&datagram).expect_err("junk");
            decode::<ReplyMessage>(&datagram).expect_err("junk");
        });
        assert!(asked < 2 * MESSAGE_BYTES, "{byte:#x}: {asked}");
    }
}

#[test]
fn proving_the_only_spelling_allocates_nothing() {
    let request = RequestMessage { id: RequestId(9), request: Request::Records { after: None, limit: 14 } };
    let datagram = encode(&request).unwrap();
    let (result, asked) = asked_by(|| decode::<RequestMessage>(&datagram));
    assert_eq!((result.unwrap(), asked), (request, 0));

    let (uuid, uid) = (DomainUuid::from_bytes([7; 16]), GuestUid::new(0x7FFD_0000).unwrap());
    let reply = ReplyMessage { id: RequestId(9), reply: Reply::Defined(Defined { uuid, uid, changed: true }) };
    let datagram = encode(&reply).unwrap();
    let (result, asked) = asked_by(|| decode::<ReplyMessage>(&datagram));
    assert_eq!((result.unwrap(), asked), (reply, 0));
}
