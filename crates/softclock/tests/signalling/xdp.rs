//! Looks at devices by AF_XDP: the completions of transmissions, and several queues of one thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket as Host};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use softclock::Runtime;
use softclock::net::UdpSocket;
use softclock::net::stack::{
    self, Architecture, LinkAddress, Stack, StackError, StackMechanism, StackOptions,
};
use softclock::signalling::Period;
use softclock_testing::lab::{Namespace, VethPair};
use softclock_testing::{require, skip};

use crate::{all, counts, in_a_thread, period, with_interrupts};

/// A link: the stack has its first end, and a host in a namespace of its own the other.
struct Lab {
    link: VethPair,
    host: Arc<Namespace>,
}

impl Lab {
    fn new(queues: u32) -> Result<Self, String> {
        use softclock_linux::probe::{xdp_program, xdp_socket};
        let supported = xdp_socket().and_then(|()| xdp_program());
        supported.map_err(|error| format!("AF_XDP cannot be used here: {error}"))?;
        let link = VethPair::with_queues(queues)?;
        let host = Arc::new(Namespace::new()?);
        link.set(1, &format!("netns {}", host.id()));
        Ok(Self { link, host })
    }

    /// Sets the host's end up, with an address.
    fn connect(&self) -> Result<(), String> {
        let [_, end] = self.link.names();
        let commands = format!("link set {end} up\naddr add 192.0.2.1/24 dev {end}\n");
        self.host
            .batch("ip", &commands)
            .map_err(|error| error.to_string())
    }

    /// Lets a thread of the kernel receive at the host's end, so that frames are complete some time after the call that
    /// sends them.
    fn receive_in_thread(&self) -> Result<(), String> {
        let [here, end] = self.link.names();
        // The host's end has receive work of its own for frames that its GRO may join.
        let commands = format!("ethtool -K {end} gro on; echo 1 >/sys/class/net/{end}/threaded");
        let mut shell = self.host.command("sh");
        let has_thread = shell.args(["-c", &commands]).status();
        let is_whole = Command::new("ethtool")
            .args(["-K", &here, "tso", "off"])
            .status();
        let is_done = |status: io::Result<ExitStatus>| status.is_ok_and(|status| status.success());
        match is_done(has_thread) && is_done(is_whole) {
            true => Ok(()),
            false => Err("the receive work of a link has no thread here".into()),
        }
    }

    /// Runs a test with a stack at 192.0.2.7.
    fn run(&self, set: impl FnOnce(&mut StackOptions), test: impl AsyncFnOnce(&Stack)) {
        let [here, _] = self.link.names();
        let mut options = StackOptions::new(here);
        options.addresses.push("192.0.2.7/24".parse().unwrap());
        options.mechanism = StackMechanism::Xdp;
        // The host may send to the link address of the stack before, until it has the announcement of this one.
        options.link_address = Some(LinkAddress([2, 0, 0, 0, 0, 7]));
        set(&mut options);
        Runtime::new().unwrap().block_on(async {
            let stack = open(&options);
            let limited = softclock::timeout(PATIENCE, test(&stack)).await;
            limited.unwrap_or_else(|_| panic!("{:?}: the test hangs", options.signalling));
        });
    }

    /// Runs blocking calls of the host. Sets no timer, so only arrivals, looks and the end of the calls wake the
    /// stack's thread.
    async fn at_host<R: Send + 'static>(&self, call: impl FnOnce() -> R + Send + 'static) -> R {
        let host = self.host.clone();
        in_a_thread(move || host.inside(call).unwrap()).await
    }
}

fn open(options: &StackOptions) -> Stack {
    for _ in 0..100 {
        match stack::open(options) {
            // A child of another test has the claim of an earlier stack until it runs its own program.
            Err(StackError::Claim(..)) => thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("the interface remains claimed");
}

/// Looks find the transmissions that are complete after the call that has sent the frames.
#[test]
fn looks_count_completions() {
    require!("ip", "ethtool", "unshare", "nsenter");
    for architecture in [Architecture::SoftLrp, Architecture::NiLrp] {
        let lab = Lab::new(1).and_then(|lab| {
            lab.connect()?;
            lab.receive_in_thread()?;
            Ok(lab)
        });
        let lab = match lab {
            Ok(lab) => lab,
            Err(reason) => skip!("{reason}"),
        };
        let set = |options: &mut StackOptions| {
            options.architecture = architecture;
            options.signalling = period(Period::LONGEST);
        };
        lab.run(set, async |stack| {
            let socket = UdpSocket::bind(([192, 0, 2, 7], 7)).unwrap();
            while counts(stack).completions < 20 {
                for _ in 0..10 {
                    socket.send_to(&[0; 1000], HOST).await.unwrap();
                }
                softclock::sleep(Duration::from_millis(10)).await;
            }
            let report = stack.report();
            let counts = report.signalling.unwrap().counts;
            assert!(
                counts.completions <= report.counts.frames_sent,
                "{counts:?}"
            );
            assert_eq!(counts.packets, report.counts.frames_received);
            assert!(counts.found <= counts.looks, "{counts:?}");
        });
    }
}

/// Sends datagrams from several ports, whose hashes name the queues, and waits for the answer to each.
fn exchange(ports: u32, rounds: u32) {
    let sockets = (0..ports).map(|_| {
        let socket = Host::bind("192.0.2.1:0").unwrap();
        socket.connect("192.0.2.7:7").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let sockets: Vec<_> = sockets.collect();
    for _ in 0..rounds {
        for socket in &sockets {
            socket.send(b"x").unwrap();
            socket.recv(&mut [0; 16]).expect("an answer");
        }
    }
}

/// One thread receives from all queues: it waits only if each of them reports arrivals, or is looked at in time.
#[test]
fn one_thread_serves_all_of_its_queues() {
    require!("ip", "unshare", "nsenter");
    let lab = Lab::new(4).and_then(|lab| lab.connect().map(|()| lab));
    let lab = match lab {
        Ok(lab) => lab,
        Err(reason) => skip!("{reason}"),
    };
    for policy in all() {
        let set = |options: &mut StackOptions| options.signalling = policy;
        lab.run(set, async |stack| {
            let socket = UdpSocket::bind(([192, 0, 2, 7], 7)).unwrap();
            drop(softclock::spawn_local(async move {
                let mut buffer = [0; 1500];
                loop {
                    let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                    socket.send_to(&buffer[..length], from).await.unwrap();
                }
            }));
            lab.at_host(|| exchange(32, 8)).await;
            let report = stack.report();
            let received = report.counts.frames_received;
            assert_eq!(counts(stack).packets, received, "{policy:?}");
            assert!(received >= 256, "{policy:?}: {report:?}");
        });
    }
}

/// A thread without work looks at none of its queues.
#[test]
fn an_idle_thread_looks_at_no_queue() {
    require!("ip", "unshare", "nsenter");
    let lab = Lab::new(4).and_then(|lab| lab.connect().map(|()| lab));
    let lab = match lab {
        Ok(lab) => lab,
        Err(reason) => skip!("{reason}"),
    };
    for policy in with_interrupts() {
        let set = |options: &mut StackOptions| options.signalling = policy;
        lab.run(set, async |stack| {
            // The kernel's messages of neighbors wake any thread, so this is tried a few times.
            let mut more = Vec::new();
            for _ in 0..10 {
                let before = counts(stack);
                softclock::sleep(Duration::from_millis(200)).await;
                let looks = counts(stack).looks - before.looks;
                // The sleep ends a wait, and before the next one the thread may look.
                if looks <= 4 {
                    return;
                }
                more.push(looks);
            }
            panic!("{policy:?}: looks while idle: {more:?}");
        });
    }
}

/// The port discards.
const HOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// The time after which a test fails.
const PATIENCE: Duration = Duration::from_secs(20);
