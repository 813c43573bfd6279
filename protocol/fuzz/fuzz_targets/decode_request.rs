//! Any datagram the helper reads from the node: refused, or the only spelling of what it means.
#![no_main]
use bcd_protocol::codec::{decode, encode};
use bcd_protocol::request::RequestMessage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    if let Ok(message) = decode::<RequestMessage>(datagram) {
        let again = encode(&message).expect("what was decoded fits a datagram");
        assert_eq!(again, datagram, "two spellings of {message:?}");
        assert_eq!(decode::<RequestMessage>(&again).expect("what was encoded decodes"), message);
    }
});
