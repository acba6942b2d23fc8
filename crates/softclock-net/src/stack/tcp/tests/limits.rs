//! Limits that connections share, when they are reached.

use super::*;

/// Owners that write before they read on, while unread bytes take the memory for all.
#[test]
fn unread_bytes_do_not_keep_a_connection_from_writing() {
    let mut pair = Pair::with(|number, settings| {
        if number == 1 {
            (settings.tcp.memory, settings.tcp.least_memory) = (64_000, 4_000);
        }
    });
    let listener = pair.listen(10);
    let clients = [(); 2].map(|()| pair.connect());
    pair.run(ms(100));
    for client in clients {
        pair.write(0, client, &stream(35_000));
    }
    pair.run(Duration::from_secs(10));
    let servers = clients.map(|_| pair.hosts[1].tcp_accept(pair.now, listener).unwrap().0);
    assert!(
        pair.hosts[1].tcp_memory() > 60_000,
        "no more than a little is free"
    );
    for _ in 0..3 {
        for server in servers {
            assert_eq!(pair.write(1, server, &stream(10_000)), 4_000);
            assert!(pair.hosts[1].tcp_wait(pair.now, server, Interest::WRITABLE));
        }
        pair.run(Duration::from_secs(1));
        let woken: Vec<_> = core::iter::from_fn(|| pair.hosts[1].tcp_next_woken()).collect();
        assert_eq!(woken, servers.map(TcpWoken::Connection));
        for client in clients {
            assert_eq!(pair.read(0, client).unwrap().len(), 4_000);
        }
    }
}
