//! The bytes of every kind of message, pinned in `protocol/tests/golden`, and the fuzzers' seeds made of them.
//!
//! A change of the wire is a change of [`crate::PROTOCOL_VERSION`]. `BLESS=1 cargo test -p bcd-protocol golden`
//! writes both anew.
use super::samples;
use super::*;
use crate::request::Verb;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

type Vectors = Vec<(&'static str, Vec<u8>)>;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn blessing() -> bool {
    std::env::var_os("BLESS").is_some()
}

fn requests() -> Vectors {
    samples::requests().iter().map(|(name, message)| (*name, encode(message).unwrap())).collect()
}

fn replies() -> Vectors {
    samples::replies().iter().map(|(name, message)| (*name, encode(message).unwrap())).collect()
}

fn table(vectors: &Vectors) -> String {
    let heading = "# name, then the datagram in hex; see src/codec/tests/golden.rs\n";
    vectors.iter().fold(heading.to_owned(), |out, (name, bytes)| out + name + " " + &hex(bytes) + "\n")
}

/// Both texts, and a mark under the first digit that differs.
fn difference(name: &str, pinned: &str, now: &str) -> String {
    let at = pinned.bytes().zip(now.bytes()).take_while(|(a, b)| a == b).count();
    let mark = " ".repeat(at) + "^";
    format!("\n{name}: byte {} differs\n  pinned {pinned}\n  now    {now}\n         {mark}\n", at / 2)
}

fn compare(file: &str, vectors: &Vectors) {
    let path = here("tests/golden").join(file);
    if blessing() {
        std::fs::write(&path, table(vectors)).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<_> = pinned.lines().filter(|line| !line.starts_with('#')).collect();
    let mut wrong = String::new();
    for (row, (name, bytes)) in rows.iter().zip(vectors) {
        let now = hex(bytes);
        match row.split_once(' ') {
            Some((pinned_name, pinned)) if pinned_name == *name => {
                if pinned != now {
                    wrong += &difference(name, pinned, &now);
                }
            }
            Some(_) | None => wrong += &format!("\nthe row {row:?} stands where {name} is expected\n"),
        }
    }
    assert!(wrong.is_empty(), "the wire changed (then so must PROTOCOL_VERSION):{wrong}");
    assert_eq!(rows.len(), vectors.len(), "{file} has another number of rows than there are messages");
}

#[test]
fn every_request_has_its_pinned_bytes() {
    compare("requests.hex", &requests());
}

#[test]
fn every_reply_has_its_pinned_bytes() {
    compare("replies.hex", &replies());
}

#[test]
fn the_samples_have_every_verb() {
    let seen: BTreeSet<Verb> = samples::requests().iter().map(|(_, message)| message.request.verb()).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), Verb::ALL);
}

#[test]
fn a_changed_byte_is_shown_with_its_place() {
    let said = difference("hello", "00000100", "0000ff00");
    assert!(said.contains("hello: byte 2 differs"), "{said}");
    assert!(said.contains("pinned 00000100") && said.contains("now    0000ff00"), "{said}");
    assert!(said.ends_with(&format!("{}^\n", " ".repeat(9 + 4))), "{said}");
}

#[test]
fn some_bytes_are_written_out_by_hand() {
    // Request id 7, tag 0, version 1.
    let hello = crate::request::RequestMessage {
        id: crate::request::RequestId(7),
        request: crate::request::Request::Hello { version: 1 },
    };
    assert_eq!(encode(&hello).unwrap(), [7, 0, 1]);
    // Request id 0x0102 in three bytes, little endian; tag 5; "web-1"; paused.
    let start = crate::request::RequestMessage {
        id: crate::request::RequestId(0x0102),
        request: crate::request::Request::LibvirtStart { instance: samples::instance(), paused: true },
    };
    assert_eq!(encode(&start).unwrap(), [0xfb, 2, 1, 5, 5, b'w', b'e', b'b', b'-', b'1', 1]);
}

#[test]
fn the_fuzzers_begin_with_the_pinned_bytes() {
    for (folder, vectors) in [("decode_request", requests()), ("decode_reply", replies())] {
        let folder = here("fuzz/corpus").join(folder);
        if blessing() {
            std::fs::create_dir_all(&folder).unwrap();
        }
        let mut names = BTreeSet::new();
        for (name, bytes) in &vectors {
            let path = folder.join(name);
            if blessing() {
                std::fs::write(&path, bytes).unwrap();
            }
            assert_eq!(hex(&std::fs::read(&path).unwrap()), hex(bytes), "{}", path.display());
            names.insert((*name).to_owned());
        }
        let there: BTreeSet<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            // A fuzzer adds what it finds, named by its SHA-1.
            .filter(|name| name.len() != 40)
            .collect();
        assert_eq!(there, names, "{}", folder.display());
    }
}
