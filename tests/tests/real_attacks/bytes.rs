//! Datagrams that are no request.
use super::*;

pub(crate) fn about_bytes() -> Vec<Attack> {
    let console = || Request::Console { instance: id("idle") };
    let plan = |w: &World| Request::LibvirtPlan {
        instance: id("forged"),
        definition: files::definition(&w.base, vec![nic(BRIDGE, OTHER_MAC)]),
    };
    vec![
        attack("a datagram one byte too long", Met::Closed, |w| w.throw(&vec![0; limits::MESSAGE_BYTES + 1])),
        attack("a datagram of 200,000 bytes", Met::Closed, |w| w.throw(&vec![0xff; 200_000])),
        attack("one zero byte", Met::Closed, |w| w.throw(&[0])),
        attack("bytes of no meaning", Met::Closed, |w| w.throw(&[0xff; 64])),
        attack("a verb that does not exist", Met::Closed, |w| w.throw(&[7, 200, 0])),
        attack("a request cut short", Met::Closed, move |w| {
            let bytes = encoded(console());
            w.throw(&bytes[..bytes.len() - 1])
        }),
        attack("a request with a tail", Met::Closed, move |w| {
            let mut bytes = encoded(console());
            bytes.push(0);
            w.throw(&bytes)
        }),
        attack("a request spelled the long way", Met::Closed, move |w| {
            let bytes = encoded(console());
            // The request id 7 as a 16-bit integer: the same number, another spelling.
            w.throw(&[&[251, 7, 0], &bytes[1..]].concat())
        }),
        attack("an instance id with a path in it", Met::Closed, move |w| w.throw(&forged(console(), b"idle", b"../x"))),
        attack("an instance id in capitals", Met::Closed, move |w| w.throw(&forged(console(), b"idle", b"IDLE"))),
        attack("an instance id with a NUL", Met::Closed, move |w| w.throw(&forged(console(), b"idle", b"id\0e"))),
        attack("an instance id that is no UTF-8", Met::Closed, move |w| {
            w.throw(&forged(console(), b"idle", &[0xff, 0xfe, 0xfd, 0xfc]))
        }),
        attack("a bridge with XML in it", Met::Closed, move |w| {
            w.throw(&forged(plan(w), BRIDGE.as_bytes(), b"b'/><link>"))
        }),
        attack("a multicast mac", Met::Closed, move |w| {
            w.throw(&forged(plan(w), &[0x52, 0x54, 0, 0xaa, 0, 2], &[0x53, 0x54, 0, 0xaa, 0, 2]))
        }),
        attack("the host's own mac", Met::Closed, move |w| {
            w.throw(&forged(plan(w), &[0x52, 0x54, 0, 0xaa, 0, 2], &[0xfe, 0x54, 0, 0xaa, 0, 2]))
        }),
        attack("a message that claims a list of four thousand million", Met::Closed, move |w| {
            let mut bytes = encoded(plan(w));
            // The NIC list's length is the byte before the bridge's length.
            let at = bytes.windows(BRIDGE.len()).position(|window| window == BRIDGE.as_bytes()).expect("the bridge");
            bytes.splice(at - 2..at - 1, [252, 0xff, 0xff, 0xff, 0xff]);
            w.throw(&bytes)
        }),
        attack("a stray descriptor", Met::Closed, move |w| {
            let wire = w.wire();
            wire.send_raw(&encoded(console()), &[wire.fd().as_raw_fd()]).expect("send");
            w.met(&wire)
        }),
        attack("as many descriptors as a message takes", Met::Closed, move |w| {
            let wire = w.wire();
            let fds = vec![wire.fd().as_raw_fd(); 253];
            wire.send_raw(&encoded(console()), &fds).expect("send");
            w.met(&wire)
        }),
        attack("descriptors on the very first message", Met::Closed, |w| {
            let wire = w.bare();
            let hello = encoded(Request::Hello { version: bcd_protocol::PROTOCOL_VERSION });
            wire.send_raw(&hello, &[0, 1, 2]).expect("send");
            w.met(&wire)
        }),
    ]
}
