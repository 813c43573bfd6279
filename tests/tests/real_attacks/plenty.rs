//! Too much of everything, and clients that vanish.
use super::*;

pub(crate) fn about_plenty() -> Vec<Attack> {
    vec![
        attack("the same bytes twice", Met::NoChange, |w| {
            let bytes = encoded(Request::LibvirtSuspend { instance: id("frozen") });
            let wire = w.wire();
            wire.send_raw(&bytes, &[]).expect("send");
            wire.send_raw(&bytes, &[]).expect("send");
            let replies = [wire.recv().0.reply, wire.recv().0.reply];
            assert_eq!(replies, [Reply::Done { changed: false }, Reply::Done { changed: false }]);
            Met::NoChange
        }),
        attack("twenty thousand requests whose answers nobody reads", Met::Closed, |w| {
            let mut flood = w.wire();
            let fd = flood.fd().as_raw_fd();
            let request = Request::Records { after: None, limit: limits::RECORDS_PER_PAGE };
            // SAFETY: the descriptor is open while `flood` lives.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            nix::sys::socket::setsockopt(
                &borrowed,
                nix::sys::socket::sockopt::SendTimeout,
                &nix::sys::time::TimeVal::new(1, 0),
            )
            .expect("a timeout");
            let sent = (0..20_000).take_while(|_| flood.send(&request).is_ok()).count();
            let begun = Instant::now();
            assert_eq!(w.wire().call(&Request::Records { after: None, limit: 0 }), w.generation());
            assert!(begun.elapsed() < Duration::from_secs(1), "a second client waited {:?}", begun.elapsed());
            assert!(sent < 20_000, "the helper took {sent} requests without anybody reading its answers");
            Met::Closed
        }),
        attack("two hundred connections that say nothing", Met::Answered, |w| {
            let crowd: Vec<Wire> = (0..200)
                .filter_map(|_| {
                    let (uid, gid) = (w.place.node_uid().as_raw(), w.place.node_gid().as_raw());
                    Wire::connect_as(&w.place.helper_socket(), uid, gid).ok()
                })
                .collect();
            let begun = Instant::now();
            let met = w.ask(&Request::Records { after: None, limit: 1 });
            assert!(begun.elapsed() < Duration::from_secs(1), "an honest client waited {:?}", begun.elapsed());
            drop(crowd);
            met
        }),
        attack("a connection that never says hello", Met::Closed, |w| {
            let wire = w.bare();
            let begun = Instant::now();
            let met = w.met(&wire);
            assert!(begun.elapsed() < Duration::from_secs(limits::HANDSHAKE_SECONDS + 5));
            met
        }),
        attack("a client that vanishes right after it asked", Met::Answered, |w| {
            files::instance(&w.place, "vanished", &w.base);
            let mut wire = w.wire();
            wire.send(&w.define("vanished", w.definition())).expect("send");
            drop(wire);
            // The effect completes and is recorded: the next client finds it.
            wait_for("the record of an effect whose client vanished", 20, || {
                matches!(
                    w.wire().call(&Request::LibvirtUndefine { instance: id("vanished") }),
                    Reply::Done { changed: true }
                )
            });
            Met::Answered
        }),
    ]
}
