//! The program on a network stack of its own instead of the kernel's, for whole suites of tests: with
//! `SOFTCLOCK_TEST_STACK=1` in the environment, programs that listen on free ports of 127.0.0.1 listen on a TAP device.

use std::cell::RefCell;
use std::env;
use std::process::Command;

use softclock_testing::lab::Namespace;

thread_local! {
    /// The namespace of the test that this thread runs.
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// A network namespace in which the test's thread, and all threads and programs that it starts from now on, are hosts.
struct Network {
    namespace: Namespace,
    devices: u8,
}

impl Network {
    fn enter() -> Self {
        let namespace = Namespace::new().expect("root, for network namespaces");
        let up = namespace.run("ip link set lo up");
        up.expect("a loopback interface");
        let entry = namespace.entry().expect("a namespace");
        entry.enter().expect("root, for network namespaces");
        Self {
            namespace,
            devices: 0,
        }
    }
}

/// A TAP device of a program.
pub(crate) struct Device(u8);

impl Device {
    /// Returns a command that runs the program of `command` on a stack of its own, if the suite is to run so and the
    /// program would listen on a free port of 127.0.0.1.
    pub(crate) fn for_program(command: &Command) -> Option<(Self, Command)> {
        env::var_os("SOFTCLOCK_TEST_STACK")?;
        let is_free = |word: &&std::ffi::OsStr| *word == FREE_PORT;
        command.get_args().find(is_free)?;
        NETWORK.with_borrow_mut(|network| {
            let network = network.get_or_insert_with(Network::enter);
            network.devices += 1;
            let number = network.devices;
            let program = command.get_program().to_str().expect("a path of Unicode");
            let mut moved = network.namespace.command(program);
            let mut port = 8000;
            for word in command.get_args() {
                match is_free(&word) {
                    true => {
                        port += 1;
                        moved.arg(format!("10.91.{number}.2:{port}"))
                    }
                    false => moved.arg(word),
                };
            }
            moved.args(["--dev", &format!("tap:tap{number}")]);
            moved.args(["--address", &format!("10.91.{number}.2/24")]);
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => moved.env(name, value),
                    None => moved.env_remove(name),
                };
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

const FREE_PORT: &str = "127.0.0.1:0";
