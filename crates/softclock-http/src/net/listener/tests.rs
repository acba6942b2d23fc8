use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener as StdUnix, UnixStream};

use super::*;

/// The sockets as a successor process inherits them.
fn passed(binder: &Binder) -> Vec<Inherited> {
    let sockets = binder.sockets().unwrap().into_iter();
    let inherited = |(name, fd): (String, OwnedFd)| Inherited {
        family: match name.starts_with("unix:") {
            true => Family::Unix,
            false => Family::Internet,
        },
        name,
        fd,
    };
    sockets.map(inherited).collect()
}

fn bind(binder: &mut Binder, address: &str, threads: usize) -> Vec<Vec<Bound>> {
    let address = address.parse().unwrap();
    binder.bind(&address, 0o660, threads).unwrap()
}

fn real(bound: &[Vec<Bound>]) -> Vec<Vec<ListenAddress>> {
    let real = |bound: &Bound| bound.local_address().unwrap();
    let lists = bound.iter();
    lists.map(|list| list.iter().map(real).collect()).collect()
}

#[test]
fn each_thread_has_a_socket_and_each_socket_a_thread() {
    let mut old = Binder::default();
    let first = bind(&mut old, "127.0.0.1:0", 2);
    let second = bind(&mut old, "127.0.0.1:0", 2);
    let [first, second] = [&first, &second].map(|bound| real(bound)[0][0].clone());
    assert_ne!(first, second);
    for threads in 1..4 {
        let mut new = Binder::taking_over(passed(&old));
        for address in [&first, &second] {
            let bound = real(&bind(&mut new, "127.0.0.1:0", threads));
            assert_eq!(bound.len(), threads);
            assert!(bound.iter().all(|list| !list.is_empty()));
            let all: Vec<_> = bound.concat();
            assert_eq!(all.len(), threads.max(2));
            assert!(all.iter().all(|own| own == address));
        }
        let third = real(&bind(&mut new, "127.0.0.1:0", threads));
        assert!(third[0][0] != first && third[0][0] != second);
    }
}

#[test]
fn what_is_not_named_any_more_is_closed() {
    let mut old = Binder::default();
    let kept = bind(&mut old, "127.0.0.1:0", 1);
    let address = real(&kept)[0][0].place.clone();
    let Place::One(address) = address else {
        panic!("{address}");
    };
    let mut new = Binder::taking_over(passed(&old));
    drop(kept);
    assert!(StdTcp::bind(address).is_err());
    new.settle(0o600);
    StdTcp::bind(address).unwrap();
}

#[test]
fn the_file_of_a_socket_belongs_to_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let place = |name: &str| format!("unix:{}", path(name).display());
    let mut old = Binder::default();
    let bound = [
        bind(&mut old, &place("a"), 2),
        bind(&mut old, &place("b"), 2),
    ];
    let exist = || ["a", "b"].map(|name| path(name).exists());

    // A successor that fails to start leaves the files.
    let mut failing = Binder::taking_over(passed(&old));
    drop((bind(&mut failing, &place("a"), 2), failing));
    assert_eq!(exist(), [true, true]);

    let mut new = Binder::taking_over(passed(&old));
    let taken = bind(&mut new, &place("a"), 1);
    old.leave_paths();
    drop((bound, old));
    assert_eq!(exist(), [true, true]);
    UnixStream::connect(path("a")).unwrap();
    new.settle(0o600);
    assert_eq!(exist(), [true, false]);
    drop((taken, new));
    assert_eq!(exist(), [false, false]);
}

#[test]
fn sockets_of_the_service_manager_keep_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let listener = StdUnix::bind(directory.path().join("s")).unwrap();
    let inherited = |name: &str| Inherited {
        name: name.into(),
        family: Family::Unix,
        fd: listener.as_fd().try_clone_to_owned().unwrap(),
    };
    let named = ["systemd:web", "systemd:local"].map(inherited);
    let mut binder = Binder::taking_over(named.into());
    assert_eq!(bind(&mut binder, "systemd:web", 2)[1].len(), 1);
    assert_eq!(bind(&mut binder, "systemd", 1)[0].len(), 2);
    let again = binder.sockets().unwrap();
    let names: Vec<_> = again.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["systemd:web", "systemd:local"]);
}
