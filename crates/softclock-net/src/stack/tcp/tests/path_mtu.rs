//! Reports of routers that a path carries shorter packets only.

use super::link::Answering;
use super::*;
use crate::link::Header;

/// A router reports once what all connections to the host need to know: the segments of the others never reach it.
#[test]
fn all_connections_to_a_host_learn_of_a_report() {
    for offloads in [false, true] {
        let mut pair = Pair::with(|_, settings| settings.offloads_tcp = offloads);
        let listener = pair.listen(10);
        let clients = [(); 2].map(|()| pair.connect());
        pair.run(ms(100));
        let servers = clients.map(|_| pair.hosts[1].tcp_accept(pair.now, listener).unwrap().0);
        pair.write(0, clients[0], &stream(1000));
        pair.settle();
        let (_, _, quoted) = pair.flying.last().unwrap();
        let report = Answering::new(9, 1).too_big(quoted, 1000);
        pair.hosts[0].on_frame(pair.now, pair.now, report, Verify::Yes);
        pair.settle();
        pair.fate = alloc::boxed::Box::new(|host, frame| {
            let longest = Header::BYTES + 1000;
            assert!(host == 1 || frame.len() <= longest, "{}", frame.len());
            vec![Duration::ZERO]
        });
        pair.transfer([clients[1], servers[1]], &stream(20_000), 0);
        let sent = pair.hosts[0].tcp_stats(clients[1]).unwrap().sent;
        assert_eq!((sent.timeouts, sent.retransmissions), (0, 0));
        assert_eq!(pair.hosts[0].drops().total(), 0);
    }
}
