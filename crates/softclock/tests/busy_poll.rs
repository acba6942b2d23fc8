//! Waits that poll the network device, over a veth pair with receive work of its own whose interrupts are delayed.

use std::io;
use std::net::{SocketAddr, UdpSocket as Host};
use std::thread;
use std::time::{Duration, Instant};

use softclock::net::UdpSocket;
use softclock::{BusyPoll, Mechanism, Runtime};
use softclock_linux::link::{DelayedInterrupts, InterruptDelay, Link};
use softclock_testing::lab::{Namespace, connect};

/// While frames arrive, the kernel looks at the device only this often.
const DELAY: InterruptDelay = InterruptDelay {
    rounds: 1,
    timeout: Duration::from_millis(100),
    suspension: Duration::ZERO,
};

const SERVER: &str = "10.79.0.1:7";
const EXCHANGES: u32 = 10;

/// Two hosts. The link of the first has receive work, since it joins segments (GRO) and its peer sends none that are
/// joined (TSO).
fn hosts() -> Result<[Namespace; 2], String> {
    let [near, far] = [Namespace::new()?, Namespace::new()?];
    let linked = || {
        near.disable_ipv6()?;
        far.disable_ipv6()?;
        connect((&near, "near"), (&far, "far"))?;
        near.run("ethtool -K near gro on")?;
        far.run("ethtool -K far tso off")?;
        near.run("ip addr add 10.79.0.1/24 dev near")?;
        far.run("ip addr add 10.79.0.2/24 dev far")
    };
    linked().map_err(|error: io::Error| error.to_string())?;
    Ok([near, far])
}

/// Returns the time of exchanges, one after the other, between a host and a server whose waits poll as given.
fn exchanges([near, far]: [&Namespace; 2], polling: BusyPoll) -> io::Result<Duration> {
    let client = || {
        let host = Host::bind("10.79.0.2:0").unwrap();
        host.connect(SERVER).unwrap();
        host.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        host
    };
    let host = far.inside(client)?;
    let serve = || {
        // Not io_uring: on a loaded machine, its waits do not poll in every run.
        let builder = Runtime::builder()
            .events(Mechanism::Epoll)
            .busy_poll(polling);
        let runtime = builder.build()?;
        runtime.block_on(async {
            let socket = UdpSocket::bind(SERVER.parse::<SocketAddr>().unwrap())?;
            let client = thread::spawn(move || {
                let exchange = || {
                    host.send(b"hello").unwrap();
                    host.recv(&mut [0; 8]).unwrap();
                };
                // From the first frame on, the kernel knows the device of the server's socket.
                exchange();
                let begun = Instant::now();
                (0..EXCHANGES).for_each(|_| exchange());
                begun.elapsed()
            });
            for _ in 0..=EXCHANGES {
                let mut buffer = [0; 8];
                let (length, from) = socket.recv_from(&mut buffer).await?;
                socket.send_to(&buffer[..length], from).await?;
            }
            Ok(client.join().unwrap())
        })
    };
    near.inside(serve)?
}

#[test]
fn waits_that_poll_need_no_interrupts() {
    softclock_testing::require!("ip", "unshare", "nsenter", "ethtool");
    let [near, far] = match hosts() {
        Ok(hosts) => hosts,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let delay = || DelayedInterrupts::set(&Link::named("near").unwrap(), DELAY);
    let _delayed = near.inside(delay).unwrap().unwrap();
    let half = DELAY.timeout * EXCHANGES / 2;
    let polling = BusyPoll {
        is_preferred: true,
        // Longer than the other host may be late, on a loaded machine.
        ..BusyPoll::of(Duration::from_secs(5))
    };
    let time = |polling| exchanges([&near, &far], polling);
    let without = time(BusyPoll::OFF).unwrap();
    assert!(without > half, "{without:?}");
    let with = match time(polling) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            softclock_testing::skip!("{error}")
        }
        with => with.unwrap(),
    };
    assert!(with < half, "{with:?}");
}

#[test]
fn mechanisms_without_polling_are_refused() {
    for mechanism in [Mechanism::Poll, Mechanism::Select] {
        let builder = Runtime::builder().events(mechanism);
        let polling = BusyPoll::of(Duration::from_micros(50));
        let refused = builder.clone().busy_poll(polling).build().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported, "{refused}");
        assert!(
            refused.to_string().starts_with(mechanism.name()),
            "{refused}"
        );
        builder.busy_poll(BusyPoll::OFF).build().unwrap();
    }
}
