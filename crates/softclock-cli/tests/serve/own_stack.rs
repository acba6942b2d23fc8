//! The program on a network stack of its own instead of the kernel's, for whole suites of tests: with
//! `SOFTCLOCK_TEST_STACK=1` in the environment, programs that listen on free ports of 127.0.0.1 listen on a TAP device.

use std::cell::RefCell;
use std::env;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use softclock_testing::lab::Namespace;

thread_local! {
    /// The namespace of the test that this thread runs.
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// A network namespace in which the test's thread, and all threads and programs that it starts from now on, are hosts.
struct Network {
    namespace: Namespace,
    /// The number of the latest program's device.
    latest: u8,
}

impl Network {
    fn enter() -> Self {
        let namespace = Namespace::new().expect("root, for network namespaces");
        let [a, b, c, _] = CLIENTS;
        let commands = format!(
            "link set lo up\naddr add {UPSTREAMS}/32 dev lo\n\
             route add local {a}.{b}.{c}.0/24 dev lo\n"
        );
        let up = namespace.batch("ip", &commands);
        up.expect("a loopback interface");
        // From one program's device to that of another.
        let forwards = namespace.run("sysctl -qw net.ipv4.ip_forward=1");
        forwards.expect("sysctl of procps");
        let entry = namespace.entry().expect("a namespace");
        entry.enter().expect("root, for network namespaces");
        Self {
            namespace,
            latest: 0,
        }
    }
}

/// Whether the suite is to run on a stack.
pub(crate) fn is_chosen() -> bool {
    env::var_os("SOFTCLOCK_TEST_STACK").is_some()
}

/// The address of upstreams that the test runs. A program reaches it by its stack, if it has one.
pub(crate) fn host() -> IpAddr {
    match is_chosen() {
        true => NETWORK.with_borrow_mut(|network| {
            network.get_or_insert_with(Network::enter);
            UPSTREAMS.into()
        }),
        false => Ipv4Addr::LOCALHOST.into(),
    }
}

/// An address of the test's machine, from which it connects to programs.
pub(crate) fn client(number: u8) -> [u8; 4] {
    let [a, b, c, _] = match is_chosen() {
        true => CLIENTS,
        false => [127, 0, 0, 0],
    };
    [a, b, c, number]
}

/// The descriptors that a program has for a connection.
pub(crate) fn connection_descriptors() -> usize {
    usize::from(!is_chosen())
}

/// The names of the programs of a test, for their certificates.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let on_devices = (1..=DEVICES).map(|device| format!("10.91.{device}.2"));
    let addresses = [Ipv4Addr::LOCALHOST, UPSTREAMS].map(|address| address.to_string());
    let more = is_chosen().then_some(on_devices);
    addresses.into_iter().chain(more.into_iter().flatten())
}

/// A TAP device of a program.
pub(crate) struct Device(u8);

impl Device {
    /// Returns a command that runs the program of `command` on a stack of its own, if the suite is to run so and the
    /// program would listen on a free port of 127.0.0.1.
    pub(crate) fn for_program(command: &Command) -> Option<(Self, Command)> {
        if !is_chosen() || !command.get_args().any(|word| beside_port(word).is_some()) {
            return None;
        }
        NETWORK.with_borrow_mut(|network| {
            let network = network.get_or_insert_with(Network::enter);
            let number = network.latest % DEVICES + 1;
            network.latest = number;
            let program = command.get_program().to_str().expect("a path of Unicode");
            let mut moved = network.namespace.command(program);
            let mut port = 8000;
            let mut is_metrics = false;
            for word in command.get_args() {
                // Metrics are served at addresses of the host.
                let is_host =
                    is_metrics || word.to_str().is_some_and(|word| word.starts_with(METRICS));
                is_metrics = word == METRICS;
                match beside_port(word).filter(|_| !is_host) {
                    Some(before) => {
                        port += 1;
                        moved.arg(format!("{before}10.91.{number}.2:{port}"))
                    }
                    None => moved.arg(word),
                };
            }
            moved.args(["--dev", &format!("tap:tap{number}")]);
            moved.args(["--address", &format!("10.91.{number}.2/24")]);
            moved.args(["--gateway", &format!("10.91.{number}.1")]);
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => moved.env(name, value),
                    None => moved.env_remove(name),
                };
            }
            if let Some(directory) = command.get_current_dir() {
                moved.current_dir(directory);
            }
            Some((Self(number), moved))
        })
    }

    /// Gives the test an address on the device of a program that has started.
    pub(crate) fn connect(&self) {
        let Self(number) = self;
        NETWORK.with_borrow(|network| {
            let network = network.as_ref().expect("it was entered");
            let add = format!("ip addr add 10.91.{number}.1/24 dev tap{number}");
            network.namespace.run(&add).expect("a TAP device");
        });
    }
}

/// What is before the free port of 127.0.0.1 that a word of a command ends with, such as `--listen=tls:`.
fn beside_port(word: &OsStr) -> Option<&str> {
    let before = word.to_str()?.strip_suffix("127.0.0.1:0")?;
    // Not the last word of a script.
    (!before.contains(' ')).then_some(before)
}

/// The address of upstreams, which no device has, so that stacks have no neighbor of this address.
const UPSTREAMS: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);

/// Addresses of clients, those that differ in the last byte.
const CLIENTS: [u8; 4] = [10, 91, 200, 0];

const METRICS: &str = "--metrics";

/// The numbers of devices, after which they begin anew: more than the programs that run together.
const DEVICES: u8 = 32;
