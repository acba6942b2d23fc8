//! Another proxy, in front and behind: a thousand requests each way, all of them right.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use softclock_testing::KilledOnDrop;
use tempfile::TempDir;

use crate::client::Client;
use crate::server::{Server, directory, noise, until};
use crate::upstream::{free_addresses, proxy};

/// A running HAProxy, killed when dropped.
struct Haproxy {
    _child: KilledOnDrop,
    address: SocketAddr,
    _directory: TempDir,
}

impl Haproxy {
    /// Passes requests on to `server`, keeping connections.
    fn before(server: SocketAddr) -> Self {
        let [address] = free_addresses();
        let directory = directory(&[]);
        let path = directory.path().join("haproxy.cfg");
        let configuration = format!(
            "global\n  maxconn 1000\ndefaults\n  mode http\n  timeout connect 10s\n  timeout client 30s\n  \
            timeout server 30s\n  http-reuse always\nfrontend front\n  bind {address}\n  default_backend back\n\
            backend back\n  server one {server}\n"
        );
        fs::write(&path, configuration).expect("a file");
        let program = softclock_testing::find("haproxy").expect("required before");
        let child = Command::new(program)
            .args(["-db", "-q", "-f"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        until("HAProxy listens", || {
            std::net::TcpStream::connect(address).is_ok()
        });
        Self {
            _child: KilledOnDrop::new(child),
            address,
            _directory: directory,
        }
    }
}

/// Files of many sizes, and their contents.
fn site() -> (TempDir, Vec<(String, Vec<u8>)>) {
    let sizes = [0, 1, 100, 5_000, 16_384, 70_000, 500_000];
    let files: Vec<_> = sizes
        .iter()
        .map(|&size| (format!("f{size}"), noise(size)))
        .collect();
    let list: Vec<_> = files
        .iter()
        .map(|(name, content)| (name.as_str(), &content[..]))
        .collect();
    (directory(&list), files)
}

/// A thousand requests of several kinds, some connections.
fn thousand_requests(address: SocketAddr, files: &[(String, Vec<u8>)]) {
    for _ in 0..10 {
        let mut client = Client::connect(address);
        for number in 0..100 {
            let (name, content) = &files[number % files.len()];
            let target = format!("/{name}?{number}");
            match number % 5 {
                0 => {
                    let reply = client.ask("HEAD", &target, &[]);
                    assert_eq!((reply.status, reply.body.len()), (200, 0));
                }
                1 => assert_eq!(
                    client.ask("GET", &format!("/none{number}"), &[]).status,
                    404
                ),
                _ => {
                    let reply = client.ask("GET", &target, &[]);
                    assert!(
                        reply.is_complete && reply.status == 200,
                        "{target}: {}",
                        reply.status
                    );
                    assert!(reply.body == *content, "{target}");
                }
            }
        }
    }
}

#[test]
fn haproxy_in_front_of_a_server() {
    softclock_testing::require!("haproxy");
    let (directory, files) = site();
    let server = Server::start(Some(directory.path()), &[]);
    let front = Haproxy::before(server.address());
    thousand_requests(front.address, &files);
}

#[test]
fn a_proxy_in_front_of_haproxy() {
    softclock_testing::require!("haproxy");
    let (directory, files) = site();
    let server = Server::start(Some(directory.path()), &[]);
    let behind = Haproxy::before(server.address());
    let url = format!("http://{}", behind.address);
    let proxy = proxy(&[&url], &[]);
    thousand_requests(proxy.address(), &files);
}
