//! Proxies that pass requests on to themselves, or on to each other.

use std::net::SocketAddr;

use crate::client::Client;
use crate::server::Server;
use crate::upstream::{Upstream, free_addresses, proxy};

/// A proxy that also listens on `own`, with its metrics.
fn proxy_at(own: SocketAddr, upstream: &str) -> Server {
    let listen = own.to_string();
    let options = ["--listen", &listen, "--metrics", "127.0.0.1:0"];
    proxy(&[upstream], &options)
}

fn loops_found(proxy: &Server) -> bool {
    let metrics = Client::connect(proxy.metrics()).get("/metrics");
    let line = "softclock_limits_reached_total{limit=\"proxy_loop\"} 1\n";
    metrics.text().contains(line)
}

#[test]
fn a_request_that_comes_back_is_a_508() {
    let [own] = free_addresses();
    let proxy = proxy_at(own, &format!("http://{own}"));
    let before = proxy.descriptors();
    let mut client = proxy.connect();
    let reply = client.ask("GET", "/", &[]);
    assert_eq!(reply.status, 508, "{}", reply.text());
    // The client's connection, and both ends of one to itself.
    let more = proxy.descriptors() - before;
    assert!(more <= 8, "{more} descriptors");
    assert!(loops_found(&proxy));
    proxy.until_logged("limit=\"proxy_loop\"");
    // Such an answer does not count as a failure of the upstream.
    for _ in 0..5 {
        assert_eq!(client.ask("GET", "/", &[]).status, 508);
    }
}

#[test]
fn proxies_in_a_circle_end_it_at_the_first() {
    let [first, second] = free_addresses();
    let first_proxy = proxy_at(first, &format!("http://{second}"));
    let second_proxy = proxy_at(second, &format!("http://{first}"));
    let reply = first_proxy.connect().ask("GET", "/", &[]);
    assert_eq!(reply.status, 508, "{}", reply.text());
    assert!(loops_found(&first_proxy) && !loops_found(&second_proxy));
}

#[test]
fn proxies_can_be_chained() {
    let upstream = Upstream::saying("the end");
    let third = proxy(&[&upstream.url()], &[]);
    let second = proxy(&[&format!("http://{}", third.address())], &[]);
    let first = proxy(
        &[&format!("http://{}", second.address())],
        &["--via", "edge"],
    );
    let reply = first.connect().ask("GET", "/", &["Via: 1.1 softclock"]);
    assert_eq!(reply.text(), "the end");
    assert_eq!(
        reply.header("via"),
        Some("1.1 softclock, 1.1 softclock, 1.1 edge")
    );
    let seen = upstream.seen().pop().unwrap();
    let via: Vec<_> = seen.header("via").unwrap().split(", ").collect();
    assert_eq!(via[..2], ["1.1 softclock", "1.1 edge"]);
    assert!(via[2].starts_with("1.1 softclock-") && via[3].starts_with("1.1 softclock-"));
    assert_ne!(via[2], via[3], "each process has its own");
    // Of two proxies with the same name, the second one takes the first one's requests for a loop.
    let second = proxy(&[&upstream.url()], &["--via", "edge"]);
    let first = proxy(
        &[&format!("http://{}", second.address())],
        &["--via", "edge"],
    );
    assert_eq!(first.connect().ask("GET", "/", &[]).status, 508);
}
