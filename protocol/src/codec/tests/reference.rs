//! The wire format written a second time, without serde and without the codec's library: what any other codec in
//! `codec.rs` would have to write. Integers can be widened on purpose, for datagrams that only mean the same.
use crate::definition::{Definition, ImageFormat};
use crate::reply::{FailureKind, RecordView, Reply, ReplyMessage};
use crate::request::{Request, RequestMessage};
use ipnet::IpNet;

/// Writes one message.
#[derive(Default)]
pub(super) struct Wire {
    bytes: Vec<u8>,
    integers: usize,
    widened: Option<(usize, u8)>,
}

impl Wire {
    /// Writes integer number `index` in the width that `marker` stands for: 0xfb two, 0xfc four, 0xfd eight bytes.
    pub(super) fn widening(index: usize, marker: u8) -> Self {
        Self { widened: Some((index, marker)), ..Self::default() }
    }

    /// The bytes, and how many integers are in them.
    pub(super) fn finish(self) -> (Vec<u8>, usize) {
        (self.bytes, self.integers)
    }

    fn integer(&mut self, n: u64) {
        let least = match n {
            0..=250 => 0,
            251..=0xffff => 0xfb,
            0x1_0000..=0xffff_ffff => 0xfc,
            _ => 0xfd,
        };
        let marker = match self.widened {
            Some((index, marker)) if index == self.integers => marker.max(least),
            Some(_) | None => least,
        };
        self.integers += 1;
        let width = match marker {
            0xfb => 2,
            0xfc => 4,
            0xfd => 8,
            _ => return self.bytes.push(u8::try_from(n).unwrap()),
        };
        self.bytes.push(marker);
        self.bytes.extend_from_slice(&n.to_le_bytes()[..width]);
    }

    fn text(&mut self, text: &str) {
        self.integer(text.len() as u64);
        self.raw(text.as_bytes());
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn flag(&mut self, set: bool) {
        self.bytes.push(u8::from(set));
    }

    fn address(&mut self, net: &IpNet) {
        match net {
            IpNet::V4(net) => {
                self.integer(0);
                self.raw(&net.addr().octets());
            }
            IpNet::V6(net) => {
                self.integer(1);
                self.raw(&net.addr().octets());
            }
        }
        self.raw(&[net.prefix_len()]);
    }

    fn definition(&mut self, definition: &Definition) {
        let Definition { allocation, vcpus, memory, disk, image, nics } = definition;
        self.text(allocation.as_str());
        self.integer(u64::from(vcpus.get()));
        self.integer(memory.get());
        self.integer(disk.get());
        self.raw(image.sha256.as_bytes());
        self.integer(match image.format {
            ImageFormat::Qcow2 => 0,
            ImageFormat::Raw => 1,
        });
        self.integer(nics.len() as u64);
        for nic in nics.iter() {
            self.text(nic.bridge.as_str());
            self.raw(nic.mac.as_bytes());
            self.integer(nic.addresses.len() as u64);
            nic.addresses.iter().for_each(|net| self.address(net));
        }
    }

    fn record(&mut self, record: &RecordView) {
        let RecordView { instance, uuid, uid, definition, unfinished } = record;
        self.text(instance.as_str());
        self.raw(uuid.as_bytes());
        self.integer(u64::from(uid.get()));
        self.definition(definition);
        self.flag(*unfinished);
    }

    pub(super) fn request(&mut self, message: &RequestMessage) {
        let tag = match &message.request {
            Request::Hello { .. } => 0,
            Request::Records { .. } => 1,
            Request::LibvirtPlan { .. } => 2,
            Request::LibvirtDefine { .. } => 3,
            Request::LibvirtUndefine { .. } => 4,
            Request::LibvirtStart { .. } => 5,
            Request::LibvirtShutdown { .. } => 6,
            Request::LibvirtDestroy { .. } => 7,
            Request::LibvirtSuspend { .. } => 8,
            Request::LibvirtResume { .. } => 9,
            Request::LibvirtBlockResize { .. } => 10,
            Request::Console { .. } => 11,
        };
        self.integer(message.id.0);
        self.integer(tag);
        match &message.request {
            Request::Hello { version } => self.integer(u64::from(*version)),
            Request::Records { after, limit } => {
                self.flag(after.is_some());
                if let Some(id) = after {
                    self.text(id.as_str());
                }
                self.integer(u64::from(*limit));
            }
            Request::LibvirtPlan { instance, definition } | Request::LibvirtDefine { instance, definition } => {
                self.text(instance.as_str());
                self.definition(definition);
            }
            Request::LibvirtStart { instance, paused } => {
                self.text(instance.as_str());
                self.flag(*paused);
            }
            Request::LibvirtBlockResize { instance, disk } => {
                self.text(instance.as_str());
                self.integer(disk.get());
            }
            Request::LibvirtUndefine { instance }
            | Request::LibvirtShutdown { instance }
            | Request::LibvirtDestroy { instance }
            | Request::LibvirtSuspend { instance }
            | Request::LibvirtResume { instance }
            | Request::Console { instance } => self.text(instance.as_str()),
        }
    }

    pub(super) fn reply(&mut self, message: &ReplyMessage) {
        self.integer(message.id.0);
        match &message.reply {
            Reply::Hello(welcome) => {
                self.integer(0);
                self.integer(u64::from(welcome.version));
                self.text(welcome.package.as_str());
            }
            Reply::Records(page) => {
                self.integer(1);
                self.integer(page.generation);
                self.integer(u64::from(page.total));
                self.integer(page.records.len() as u64);
                page.records.iter().for_each(|record| self.record(record));
                self.flag(page.more);
            }
            Reply::Plan(xml) => {
                self.integer(2);
                self.text(xml.as_str());
            }
            Reply::Defined(defined) => {
                self.integer(3);
                self.raw(defined.uuid.as_bytes());
                self.integer(u64::from(defined.uid.get()));
                self.flag(defined.changed);
            }
            Reply::Done { changed } => {
                self.integer(4);
                self.flag(*changed);
            }
            Reply::Console => self.integer(5),
            Reply::Denied(denied) => {
                self.integer(6);
                self.text(denied.rule.as_str());
                self.text(denied.detail.as_str());
            }
            Reply::Failed(failed) => {
                self.integer(7);
                self.integer(match failed.kind {
                    FailureKind::ResourcesExhausted => 0,
                    FailureKind::Unavailable => 1,
                    FailureKind::Timeout => 2,
                    FailureKind::Refused => 3,
                    FailureKind::Ledger => 4,
                });
                self.text(failed.detail.as_str());
            }
        }
    }
}
