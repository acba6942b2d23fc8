//! The contract of all carriers of sockets. The suite is a list of functions over an address; each carrier, address
//! family and mechanism runs all of it.

mod batches;
mod datagrams;
mod streams;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use softclock::net::stack::{self, Architecture, Prefix, StackError, StackOptions, StackShare};
use softclock::net::{PacedBy, Pacing, UdpSocket};
use softclock::{Mechanism, Remote, Runtime};
use softclock_testing::lab::{Namespace, VethPair};

use batches::*;
use datagrams::*;
use streams::*;

/// Runs parts of the suite with each of some carriers: `all`, those `of_stacks`, whose sockets cannot share a port, or
/// those about TCP (`streams`) or UDP (`datagrams`) only.
macro_rules! conformance {
    ($parts:ident: $($carrier:ident => $address:ident by $by:expr, $pacing:expr;)*) => {$(
        mod $carrier {
            use super::*;
            conformance!(@$parts $address $by, $pacing);
        }
    )*};
    (@all $address:ident $by:expr, $pacing:expr) => {
            conformance!(@of_stacks $address $by, $pacing);
            conformance!(@tests $address $by, $pacing;
                listeners_share_a_port_when_asked
                a_batch_is_one_trigger_state
                a_short_batch_is_not_asked_for_more
            );
    };
    (@of_stacks $address:ident $by:expr, $pacing:expr) => {
            conformance!(@streams $address $by, $pacing);
            conformance!(@datagrams $address $by, $pacing);
    };
    (@streams $address:ident $by:expr, $pacing:expr) => {
            conformance!(@tests $address $by, $pacing;
                a_stream_carries_bytes_both_ways
                large_transfers_wait_for_the_reader
                parts_of_shared_memory_arrive_in_their_places
                half_close_lets_the_answer_through
                dropping_a_stream_ends_the_peer_s_reading
                zero_linger_resets
                other_linger_times_are_refused
                unread_data_makes_closing_a_reset
                a_lost_connection_is_known_without_a_call
                a_half_closed_peer_wakes_no_waiter_for_the_loss
                an_ended_direction_is_known_behind_unread_data
                writing_to_a_closed_peer_fails
                a_refused_connection_is_an_error
                a_listener_survives_connections_that_vanish
                several_tasks_accept_from_one_listener
                one_task_reads_while_another_writes
                a_shutdown_ends_what_waits
                a_dropped_read_loses_nothing
                a_busy_port_is_an_error
                a_reader_that_never_waits_lets_others_run
                a_long_write_lets_others_run
                files_are_sent_behind_what_was_written
                calls_are_trigger_states_of_their_kind
                streams_are_read_and_written_without_waiting
                room_is_told_after_a_short_write
                options_of_streams_are_set_or_refused
                only_streams_of_the_kernel_have_descriptors
            );
    };
    (@datagrams $address:ident $by:expr, $pacing:expr) => {
        conformance!(@tests $address $by, $pacing;
            datagrams_keep_their_bounds
            a_connected_socket_hears_its_peer_only
            scopes_of_global_addresses_are_ignored
            datagrams_are_received_and_sent_without_waiting
            options_of_datagrams_are_set_or_refused
            members_receive_what_is_sent_to_their_group
            only_sockets_of_the_kernel_have_descriptors
            a_batch_is_sent_in_order
            a_batch_is_sent_with_the_ecn_fields
            a_batch_is_sent_from_the_stated_source
            trains_of_datagrams_keep_their_bounds
            an_unreachable_peer_is_told_once
            a_batch_waits_for_its_first_datagram
            a_batch_has_datagrams_in_order_with_their_sources
            long_datagrams_of_a_batch_are_cut_and_marked
            a_batch_has_only_the_facts_asked_for
            a_batch_has_the_destinations_at_a_wildcard
            a_batch_has_the_ecn_fields
            a_batch_has_times_on_the_runtime_s_clock
            joined_datagrams_of_a_batch_are_split
            a_dropped_batch_receive_loses_nothing
            an_unreachable_peer_fails_one_batch
            a_receiver_of_batches_lets_others_run
        );
    };
    (@tests $address:ident $by:expr, $pacing:expr; $($test:ident)*) => {$(
        #[test]
        fn $test() {
            run($by, $address::LOCALHOST.into(), $pacing, super::$test);
        }
    )*};
}

conformance! { all:
    kernel_v4_by_epoll => Ipv4Addr by Kernel(Mechanism::Epoll), None;
    kernel_v4_by_io_uring => Ipv4Addr by Kernel(Mechanism::IoUring), None;
    kernel_v4_by_poll => Ipv4Addr by Kernel(Mechanism::Poll), None;
    kernel_v4_by_select => Ipv4Addr by Kernel(Mechanism::Select), None;
    kernel_v6_by_epoll => Ipv6Addr by Kernel(Mechanism::Epoll), None;
    kernel_v6_by_io_uring => Ipv6Addr by Kernel(Mechanism::IoUring), None;
    paced_v4 => Ipv4Addr by Kernel(Mechanism::Epoll), Some(paced());
    paced_v4_by_io_uring => Ipv4Addr by Kernel(Mechanism::IoUring), Some(paced());
    paced_v4_by_poll => Ipv4Addr by Kernel(Mechanism::Poll), Some(paced());
    paced_v6 => Ipv6Addr by Kernel(Mechanism::Epoll), Some(paced());
    paced_by_waking => Ipv4Addr by Kernel(Mechanism::Epoll), Some(Pacing { buffer_bytes: Some(0), ..paced() });
    paced_by_the_kernel => Ipv4Addr by Kernel(Mechanism::Epoll), Some(Pacing { by: PacedBy::Kernel, ..paced() });
}

#[cfg(feature = "memory-net")]
conformance! { all:
    memory_v4 => Ipv4Addr by Memory, None;
    memory_v6 => Ipv6Addr by Memory, None;
    paced_in_memory => Ipv4Addr by Memory, Some(paced());
    paced_in_memory_by_waking => Ipv4Addr by Memory, Some(Pacing { buffer_bytes: Some(0), ..paced() });
}

// Pacing is the same with all architectures, so it is tested with one.
conformance! { of_stacks:
    soft_lrp_v4 => Ipv4Addr by Stack(Architecture::SoftLrp), None;
    soft_lrp_v6 => Ipv6Addr by Stack(Architecture::SoftLrp), None;
    early_demux_v4 => Ipv4Addr by Stack(Architecture::EarlyDemux), None;
    early_demux_v6 => Ipv6Addr by Stack(Architecture::EarlyDemux), None;
    bsd_v4 => Ipv4Addr by Stack(Architecture::Bsd), None;
    bsd_v6 => Ipv6Addr by Stack(Architecture::Bsd), None;
    ni_lrp_v4 => Ipv4Addr by Stack(Architecture::NiLrp), None;
    ni_lrp_v6 => Ipv6Addr by Stack(Architecture::NiLrp), None;
    paced_soft_lrp_v4 => Ipv4Addr by Stack(Architecture::SoftLrp), Some(paced());
    paced_soft_lrp_v6 => Ipv6Addr by Stack(Architecture::SoftLrp), Some(paced());
}

conformance! { streams:
    soft_lrp_v4_to_the_kernel => Ipv4Addr by ToKernel(Architecture::SoftLrp), None;
    soft_lrp_v6_to_the_kernel => Ipv6Addr by ToKernel(Architecture::SoftLrp), None;
    early_demux_v4_to_the_kernel => Ipv4Addr by ToKernel(Architecture::EarlyDemux), None;
    early_demux_v6_to_the_kernel => Ipv6Addr by ToKernel(Architecture::EarlyDemux), None;
    bsd_v4_to_the_kernel => Ipv4Addr by ToKernel(Architecture::Bsd), None;
    bsd_v6_to_the_kernel => Ipv6Addr by ToKernel(Architecture::Bsd), None;
    ni_lrp_v4_to_the_kernel => Ipv4Addr by ToKernel(Architecture::NiLrp), None;
    ni_lrp_v6_to_the_kernel => Ipv6Addr by ToKernel(Architecture::NiLrp), None;
    paced_soft_lrp_v4_to_the_kernel => Ipv4Addr by ToKernel(Architecture::SoftLrp), Some(paced());
    paced_soft_lrp_v6_to_the_kernel => Ipv6Addr by ToKernel(Architecture::SoftLrp), Some(paced());
}

// Threads that share a stack.
conformance! { datagrams:
    shared_soft_lrp_v4 => Ipv4Addr by Shared(Architecture::SoftLrp), None;
    shared_soft_lrp_v6 => Ipv6Addr by Shared(Architecture::SoftLrp), None;
    shared_early_demux_v4 => Ipv4Addr by Shared(Architecture::EarlyDemux), None;
    shared_early_demux_v6 => Ipv6Addr by Shared(Architecture::EarlyDemux), None;
    shared_bsd_v4 => Ipv4Addr by Shared(Architecture::Bsd), None;
    shared_bsd_v6 => Ipv6Addr by Shared(Architecture::Bsd), None;
    shared_ni_lrp_v4 => Ipv4Addr by Shared(Architecture::NiLrp), None;
    shared_ni_lrp_v6 => Ipv6Addr by Shared(Architecture::NiLrp), None;
}

#[test]
fn batches_have_mapped_addresses() {
    for mechanism in [Mechanism::Epoll, Mechanism::IoUring] {
        run(
            Kernel(mechanism),
            Ipv6Addr::LOCALHOST.into(),
            None,
            a_batch_of_a_dual_stack_socket_has_mapped_addresses,
        );
    }
}

/// The loopback interface has no route to them.
#[test]
fn members_of_the_kernel_receive_what_is_sent_to_groups_of_ipv6() {
    softclock_testing::require!("ip", "unshare", "nsenter");
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    // Both ends stay in the namespace. `nodad`: duplicate address detection takes a second.
    let commands = "link add g0 index 42 type veth peer name g1\nlink set g0 up\nlink set g1 up\n\
                    addr add fd77::1/64 dev g0 nodad\n";
    namespace.batch("ip", commands).expect("the link is there");
    for mechanism in [Mechanism::Epoll, Mechanism::IoUring] {
        let inside = namespace.inside(|| {
            INTERFACE.set(42);
            run_here(
                Kernel(mechanism),
                "fd77::1".parse().unwrap(),
                None,
                members_receive_what_is_sent_to_their_group,
            );
        });
        inside.expect("the namespace is there");
    }
}

/// The carrier of the sockets in a test.
enum Carrier {
    /// The kernel, with sockets watched by this mechanism.
    Kernel(Mechanism),
    /// A stack of this process, of this architecture, on a TAP device, or on a veth pair if it needs AF_XDP.
    Stack(Architecture),
    /// Such a stack in a namespace of its own, whose streams lead to the kernel's TCP across the device.
    ToKernel(Architecture),
    /// Such a stack, which another thread has opened.
    Shared(Architecture),
    #[cfg(feature = "memory-net")]
    Memory,
}

use Carrier::*;

fn run<F: Future>(
    carrier: Carrier,
    address: IpAddr,
    pacing: Option<Pacing>,
    test: impl FnOnce(SocketAddr) -> F + Send,
) {
    if !matches!(carrier, ToKernel(_)) {
        return run_here(carrier, address, pacing, test);
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => softclock_testing::skip!("{reason}"),
    };
    let inside = namespace.inside(|| run_here(carrier, address, pacing, test));
    inside.expect("the namespace is there");
}

fn run_here<F: Future>(
    carrier: Carrier,
    address: IpAddr,
    pacing: Option<Pacing>,
    test: impl FnOnce(SocketAddr) -> F,
) {
    let runtime = match carrier {
        Kernel(_) if std::net::UdpSocket::bind((address, 0)).is_err() => {
            softclock_testing::skip!("this machine has no {address}");
        }
        Kernel(mechanism) => match Runtime::builder().events(mechanism).build() {
            Ok(runtime) => {
                assert_eq!(runtime.statistics().mechanism, mechanism);
                runtime
            }
            Err(error) => softclock_testing::skip!("{error}"),
        },
        Stack(_) | ToKernel(_) | Shared(_) => Runtime::new().unwrap(),
        #[cfg(feature = "memory-net")]
        Memory => Runtime::builder().in_memory().build().unwrap(),
    };
    PACING.set(pacing);
    IS_KERNEL.set(matches!(carrier, Kernel(_)));
    IS_STACK.set(matches!(carrier, Stack(_) | ToKernel(_) | Shared(_)));
    IS_SHARED.set(matches!(carrier, Shared(_)));
    let mut owner = None;
    let cable = match carrier {
        Stack(Architecture::NiLrp)
        | ToKernel(Architecture::NiLrp)
        | Shared(Architecture::NiLrp) => match VethPair::new() {
            Ok(cable) => Some(cable),
            Err(reason) => softclock_testing::skip!("{reason}"),
        },
        _ => None,
    };
    runtime.block_on(async {
        let opened = match carrier {
            Stack(architecture) => {
                let interface = cable.as_ref().map_or_else(tap, first_end);
                open_stack(interface, architecture, address).map(|_| own_address(address))
            }
            ToKernel(architecture) => {
                let interface = cable.as_ref().map_or_else(tap, first_end);
                open_stack(interface, architecture, address).map(|stack| {
                    match &cable {
                        Some(cable) => configure(&cable.names()[1], address),
                        None => configure(stack.interface(), address),
                    }
                    KERNEL.set(Some((host_address(address), 0).into()));
                    own_address(address)
                })
            }
            Shared(architecture) => {
                let interface = cable.as_ref().map_or_else(tap, first_end);
                Owner::start(interface, architecture, address).map(|started| {
                    started.share.join().unwrap();
                    owner = Some(started);
                    own_address(address)
                })
            }
            _ => Ok(address),
        };
        let address = match opened {
            Ok(address) => address,
            Err(error) => softclock_testing::skip!("{error}"),
        };
        let limited = softclock::timeout(LIMIT, test(SocketAddr::new(address, 0)));
        limited.await.expect("the test hangs");
    });
    drop(owner);
}

/// Gives the host's end of a link an address of the same version as `like`.
fn configure(interface: &str, like: IpAddr) {
    let host = host_address(like);
    let address = match host {
        IpAddr::V4(_) => format!("addr add {host}/24 dev {interface}"),
        // `nodad`: duplicate address detection takes a second.
        IpAddr::V6(_) => format!("addr add {host}/64 dev {interface} nodad"),
    };
    for words in [address, format!("link set {interface} up")] {
        let done = Command::new("ip").args(words.split(' ')).status();
        assert!(done.expect("ip is installed").success(), "{words}");
    }
}

/// The host's address on the link of a stack, of the same version as `like`.
fn host_address(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// A TAP device of a new name.
fn tap() -> String {
    static TAPS: AtomicU32 = AtomicU32::new(0);
    let number = TAPS.fetch_add(1, Ordering::Relaxed);
    format!("tap:sc{:x}n{number}", std::process::id())
}

/// The end of a pair that a stack is on.
fn first_end(cable: &VethPair) -> String {
    let [first, _] = cable.names();
    first
}

/// Gives the runtime a stack on this interface, with an address of the same version as `like`.
fn open_stack(
    interface: String,
    architecture: Architecture,
    like: IpAddr,
) -> Result<stack::Stack, StackError> {
    let mut options = StackOptions::new(interface);
    options.architecture = architecture;
    let bits = if like.is_ipv4() { 24 } else { 64 };
    let address = own_address(like);
    options.addresses.push(Prefix { address, bits });
    stack::open(&options)
}

/// Waits until the datagrams that were sent to this host have arrived. With all other carriers they have when the call
/// returns; another thread must first have carried them. It keeps their order, so the last one shows that.
async fn settled(address: SocketAddr) {
    if !IS_SHARED.get() {
        return;
    }
    let [from, to] = [(); 2].map(|()| UdpSocket::bind(address).unwrap());
    from.send_to(b"last", to.local_addr().unwrap())
        .await
        .unwrap();
    to.recv(&mut [0; 4]).await.unwrap();
}

/// The stack's address of the same version as `like`.
fn own_address(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 7).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7).into(),
    }
}

/// A thread with a stack that others share. Dropping it ends the thread.
struct Owner {
    share: StackShare,
    thread: Option<JoinHandle<()>>,
    remote: Remote,
}

impl Owner {
    fn start(
        interface: String,
        architecture: Architecture,
        like: IpAddr,
    ) -> Result<Self, StackError> {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            let remote = runtime.remote();
            runtime.block_on(async {
                let opened = open_stack(interface, architecture, like);
                let share = opened.map(|stack| (stack.share(), remote));
                let is_open = share.is_ok();
                sender.send(share).unwrap();
                if is_open {
                    END.set(false);
                    poll_fn(|cx| match END.get() {
                        true => Poll::Ready(()),
                        false => {
                            ENDING.set(Some(cx.waker().clone()));
                            Poll::Pending
                        }
                    })
                    .await;
                }
            });
        });
        let (share, remote) = receiver.recv().unwrap()?;
        Ok(Self {
            share,
            thread: Some(thread),
            remote,
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.remote
            .post(|| {
                END.set(true);
                ENDING.take().into_iter().for_each(Waker::wake);
            })
            .unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The loopback interface, which every network namespace has.
const LOOPBACK: u32 = 1;

thread_local! {
    /// Whether the sockets in the test that runs on this thread are the kernel's.
    static IS_KERNEL: Cell<bool> = const { Cell::new(false) };
    /// The interface on which those join groups.
    static INTERFACE: Cell<u32> = const { Cell::new(LOOPBACK) };
    /// Whether the sockets in the test that runs on this thread are those of a stack, and of another thread's.
    static IS_STACK: Cell<bool> = const { Cell::new(false) };
    static IS_SHARED: Cell<bool> = const { Cell::new(false) };
    /// The address at which the kernel listens in place of the stack.
    static KERNEL: Cell<Option<SocketAddr>> = const { Cell::new(None) };
    /// Whether the owner of a stack shall end, and its waker.
    static END: Cell<bool> = const { Cell::new(false) };
    static ENDING: Cell<Option<Waker>> = const { Cell::new(None) };
    /// The pacing of the streams in the test that runs on this thread.
    static PACING: Cell<Option<Pacing>> = const { Cell::new(None) };
}

/// A rate that is fast enough for megabytes.
fn paced() -> Pacing {
    Pacing::of_rate("1gbit".parse().unwrap())
}

const LIMIT: Duration = Duration::from_secs(60);
