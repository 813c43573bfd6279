//! Who connects, and what is said first.
use super::*;

pub(crate) fn about_peers() -> Vec<Attack> {
    vec![
        attack("records before hello", rule("hello-first"), |w| {
            Met::Rule(w.bare().denied(&Request::Records { after: None, limit: 1 }))
        }),
        attack("define before hello", rule("hello-first"), |w| {
            Met::Rule(w.bare().denied(&w.define("early", w.definition())))
        }),
        attack("hello of another version", rule("protocol-version"), |w| {
            Met::Rule(w.bare().denied(&Request::Hello { version: bcd_protocol::PROTOCOL_VERSION + 1 }))
        }),
        attack("hello twice", rule("hello-twice"), |w| {
            w.ask(&Request::Hello { version: bcd_protocol::PROTOCOL_VERSION })
        }),
        attack("another user in the node's group", Met::Closed, |w| w.as_stranger(65534)),
        attack("root itself", Met::Closed, |w| w.as_stranger(0)),
        attack("another guest's uid in the node's group", Met::Closed, |w| w.as_stranger(limits::GUEST_UID_FIRST)),
        attack("another user outside the group", Met::Closed, |w| {
            match Wire::connect_as(&w.place.helper_socket(), 65534, 65534) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Met::Closed,
                other => panic!("connected: {other:?}"),
            }
        }),
    ]
}

impl World {
    fn as_stranger(&self, uid: u32) -> Met {
        let gid = self.place.node_gid().as_raw();
        let mut wire = Wire::connect_as(&self.place.helper_socket(), uid, gid).expect("the group may connect");
        if wire.send(&Request::Hello { version: bcd_protocol::PROTOCOL_VERSION }).is_err() {
            return Met::Closed;
        }
        if wire.is_closed() { Met::Closed } else { Met::Answered }
    }
}
