//! Datagrams that no honest peer sends.
use super::reference::Wire;
use super::samples;
use super::*;
use crate::reply::ReplyMessage;
use crate::request::RequestMessage;
use std::fmt::Debug;

/// Runs `check` on every sample's bytes with the right message type.
macro_rules! for_every_sample {
    ($check:ident) => {
        for (name, message) in samples::requests() {
            $check::<RequestMessage>(name, &encode(&message).unwrap());
        }
        for (name, message) in samples::replies() {
            $check::<ReplyMessage>(name, &encode(&message).unwrap());
        }
    };
}

/// What is accepted must be the only spelling of what it means.
fn refused_or_canonical<T: DeserializeOwned + Serialize>(datagram: &[u8]) -> bool {
    match decode::<T>(datagram) {
        Ok(message) => {
            assert!(encode(&message).unwrap() == datagram, "{} is a second spelling", hex(datagram));
            true
        }
        Err(_) => false,
    }
}

fn malformed<T: DeserializeOwned + Serialize + Debug>(datagram: &[u8]) -> String {
    match decode::<T>(datagram) {
        Err(DecodeError::Malformed(why)) => why,
        other => panic!("{} gives {other:?}", hex(datagram)),
    }
}

#[test]
fn every_truncation_is_refused() {
    fn check<T: DeserializeOwned + Serialize + Debug>(name: &str, bytes: &[u8]) {
        for end in 1..bytes.len() {
            decode::<T>(&bytes[..end]).expect_err(name);
        }
    }
    for_every_sample!(check);
}

#[test]
fn every_changed_byte_is_refused_or_means_something_else() {
    fn check<T: DeserializeOwned + Serialize + Debug>(name: &str, bytes: &[u8]) {
        let (mut accepted, mut refused) = (0, 0);
        for place in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            for byte in (0..=255).filter(|byte| *byte != bytes[place]) {
                changed[place] = byte;
                *if refused_or_canonical::<T>(&changed) { &mut accepted } else { &mut refused } += 1;
            }
        }
        assert!(accepted > 0 && refused > 0, "{name}: {accepted} accepted and {refused} refused");
    }
    for_every_sample!(check);
}

#[test]
fn every_removed_and_doubled_byte_is_refused_or_means_something_else() {
    fn check<T: DeserializeOwned + Serialize + Debug>(_: &str, bytes: &[u8]) {
        for place in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            let byte = changed.remove(place);
            refused_or_canonical::<T>(&changed);
            changed.splice(place..place, [byte, byte]);
            refused_or_canonical::<T>(&changed);
        }
    }
    for_every_sample!(check);
}

#[test]
fn an_integer_wider_than_it_needs_to_be_is_refused() {
    fn check<M: DeserializeOwned + Serialize + Debug>(name: &str, write: impl Fn(Wire) -> (Vec<u8>, usize)) -> usize {
        let (honest, integers) = write(Wire::default());
        decode::<M>(&honest).expect(name);
        let mut told = 0;
        for index in 0..integers {
            for marker in [0xfb, 0xfc, 0xfd] {
                let (wide, _) = write(Wire::widening(index, marker));
                match decode::<M>(&wide) {
                    Ok(_) => assert_eq!(wide, honest, "{name}: integer {index} as {marker:x}"),
                    Err(DecodeError::NotCanonical(rest)) => {
                        assert!(rest > 0 && rest <= wide.len(), "{name}: {rest} of {}", wide.len());
                        told += 1;
                    }
                    Err(DecodeError::Malformed(_)) => {}
                    Err(other) => panic!("{name}: {other}"),
                }
            }
        }
        told
    }
    let mut told = 0;
    for (name, message) in samples::requests() {
        told += check::<RequestMessage>(name, |mut wire| {
            wire.request(&message);
            wire.finish()
        });
    }
    for (name, message) in samples::replies() {
        told += check::<ReplyMessage>(name, |mut wire| {
            wire.reply(&message);
            wire.finish()
        });
    }
    assert!(told > 200, "{told} wide integers were told from the narrow ones");
    assert_eq!(decode::<RequestMessage>(&[0xfb, 7, 0, 0, 1]), Err(DecodeError::NotCanonical(5)));
    assert_eq!(decode::<RequestMessage>(&[7, 0xfb, 0, 0, 1]), Err(DecodeError::NotCanonical(4)));
    assert_eq!(decode::<RequestMessage>(&[7, 0, 0xfb, 1, 0]), Err(DecodeError::NotCanonical(3)));
}

#[test]
fn an_unknown_tag_is_refused() {
    for tag in 12..=250 {
        assert!(malformed::<RequestMessage>(&[1, tag, 0]).contains("variant"), "request {tag}");
    }
    for tag in 8..=250 {
        assert!(malformed::<ReplyMessage>(&[1, tag, 0]).contains("variant"), "reply {tag}");
    }
    // A tag that is known in its low bits only.
    malformed::<RequestMessage>(&[1, 0xfc, 0, 0, 1, 0, 1]);
    malformed::<RequestMessage>(&[1, 0xfd, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
    // Neither false nor true, neither none nor some, no kind of failure, no reserved width.
    malformed::<RequestMessage>(&[1, 5, 1, b'a', 2]);
    malformed::<RequestMessage>(&[1, 1, 2, 1, b'a', 1]);
    malformed::<ReplyMessage>(&[1, 7, 5, 0]);
    malformed::<RequestMessage>(&[0xff, 0, 1]);
    malformed::<RequestMessage>(&[0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn what_follows_a_message_is_refused_with_its_length() {
    fn check<T: DeserializeOwned + Serialize + Debug>(name: &str, bytes: &[u8]) {
        let mut longer = bytes.to_vec();
        for more in 1..=3 {
            longer.push(0);
            assert_eq!(decode::<T>(&longer).expect_err(name), DecodeError::Trailing(more));
        }
        let twice = [bytes, bytes].concat();
        assert_eq!(decode::<T>(&twice).expect_err(name), DecodeError::Trailing(bytes.len()));
    }
    for_every_sample!(check);
}

#[test]
fn an_empty_datagram_is_refused() {
    assert_eq!(decode::<RequestMessage>(&[]), Err(DecodeError::Empty));
    assert_eq!(decode::<ReplyMessage>(&[]), Err(DecodeError::Empty));
}

#[test]
fn a_datagram_above_the_limit_is_refused_by_its_length_alone() {
    let long = vec![0; MESSAGE_BYTES + 1];
    assert_eq!(decode::<RequestMessage>(&long), Err(DecodeError::Oversized(MESSAGE_BYTES + 1)));
    // One byte less is read, and fails for what is in it: a hello of version 0 and 65,533 bytes behind it.
    assert_eq!(decode::<RequestMessage>(&long[1..]), Err(DecodeError::Trailing(MESSAGE_BYTES - 3)));
}

#[test]
fn a_message_above_the_limit_is_not_sent() {
    assert_eq!(encode(&vec![0_u8; MESSAGE_BYTES - 3]).unwrap().len(), MESSAGE_BYTES);
    assert_eq!(encode(&vec![0_u8; MESSAGE_BYTES - 2]), Err(EncodeError::Oversized(MESSAGE_BYTES + 1)));
    assert_eq!(encode(&vec![0_u8; 2 * MESSAGE_BYTES]), Err(EncodeError::Oversized(2 * MESSAGE_BYTES + 5)));
}

#[test]
fn a_message_that_cannot_be_written_is_an_error() {
    struct Stubborn;
    impl Serialize for Stubborn {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("not today"))
        }
    }
    let refused = encode(&Stubborn).unwrap_err();
    assert!(matches!(&refused, EncodeError::Refused(why) if why.contains("not today")), "{refused}");
}

#[test]
fn a_value_out_of_its_bounds_is_refused() {
    // An instance id with a capital, with a slash, empty, and 64 characters long.
    malformed::<RequestMessage>(&[1, 4, 1, b'A']);
    malformed::<RequestMessage>(&[1, 4, 3, b'.', b'.', b'/']);
    malformed::<RequestMessage>(&[1, 4, 0]);
    let mut long = vec![1, 4, 64];
    long.extend([b'a'; 64]);
    assert!(malformed::<RequestMessage>(&long).contains("instance id"));
    long.pop();
    long[2] = 63;
    decode::<RequestMessage>(&long).unwrap();
    // Not UTF-8.
    malformed::<RequestMessage>(&[1, 4, 2, 0xc3, 0x28]);
    // A disk of 513 bytes.
    assert!(malformed::<RequestMessage>(&[1, 10, 1, b'a', 0xfb, 1, 2]).contains("disk size 513"));
    // A control character in a sentence, a capital in a rule's id.
    malformed::<ReplyMessage>(&[1, 0, 1, 1, 7]);
    malformed::<ReplyMessage>(&[1, 6, 1, b'A', 0]);
    // A uid below and above the guests' range.
    let defined = |uid: u32| {
        let mut bytes = vec![1, 3];
        bytes.extend([0; 16]);
        bytes.push(0xfc);
        bytes.extend(uid.to_le_bytes());
        bytes.push(0);
        bytes
    };
    assert!(malformed::<ReplyMessage>(&defined(0x7FFC_FFFF)).contains("guest uid"));
    decode::<ReplyMessage>(&defined(0x7FFD_0000)).unwrap();
    decode::<ReplyMessage>(&defined(0x7FFD_7FFF)).unwrap();
    malformed::<ReplyMessage>(&defined(0x7FFD_8000));
}

#[test]
fn a_large_datagram_of_one_byte_never_nests() {
    // On a stack of 96 KiB: types that hold themselves would overflow it.
    let run = || {
        for byte in 0..=255 {
            for length in [10, 1_000, MESSAGE_BYTES] {
                let datagram = vec![byte; length];
                assert!(decode::<RequestMessage>(&datagram).is_err());
                assert!(decode::<ReplyMessage>(&datagram).is_err());
            }
        }
    };
    std::thread::Builder::new().stack_size(96 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
fn errors_tell_what_is_wrong_with_a_datagram() {
    assert_eq!(DecodeError::Empty.to_string(), "the datagram is empty");
    assert_eq!(DecodeError::Oversized(65_537).to_string(), "the datagram has 65537 bytes: the most is 65536");
    assert_eq!(DecodeError::Trailing(3).to_string(), "the datagram has 3 bytes behind its message");
    assert!(DecodeError::NotCanonical(4).to_string().contains("4 bytes from its end"));
    assert_eq!(EncodeError::Oversized(70_000).to_string(), "the message encodes to 70000 bytes: the most is 65536");
}
