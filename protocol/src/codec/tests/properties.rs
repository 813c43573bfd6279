//! Arbitrary messages keep their value and have the reference's bytes; arbitrary bytes do no harm.
use super::reference::Wire;
use super::*;
use crate::reply::ReplyMessage;
use crate::request::RequestMessage;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_comes_back_as_it_was(message in arbitrary::request()) {
        let kept = message.clone();
        let bytes = encode(&message).unwrap();
        drop(message);
        let mut wire = Wire::default();
        wire.request(&kept);
        prop_assert_eq!(hex(&bytes), hex(&wire.finish().0));
        prop_assert_eq!(decode::<RequestMessage>(&bytes).unwrap(), kept);
    }

    #[test]
    fn a_reply_comes_back_as_it_was(message in arbitrary::reply()) {
        let kept = message.clone();
        let bytes = encode(&message).unwrap();
        drop(message);
        let mut wire = Wire::default();
        wire.reply(&kept);
        prop_assert_eq!(hex(&bytes), hex(&wire.finish().0));
        prop_assert_eq!(decode::<ReplyMessage>(&bytes).unwrap(), kept);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_the_only_spelling(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(message) = decode::<RequestMessage>(&bytes) {
            prop_assert_eq!(encode(&message).unwrap(), bytes.clone());
        }
        if let Ok(message) = decode::<ReplyMessage>(&bytes) {
            prop_assert_eq!(encode(&message).unwrap(), bytes);
        }
    }

    #[test]
    fn a_request_with_several_changed_bytes_is_refused_or_the_only_spelling(
        message in arbitrary::request(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = encode(&message).unwrap();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(message) = decode::<RequestMessage>(&bytes) {
            prop_assert_eq!(encode(&message).unwrap(), bytes);
        }
    }
}
