//! Opens the interface of a stack.

mod host;

use std::rc::Rc;
use std::sync::Arc;

use softclock_core::Clock;
use softclock_linux::link::{
    ChannelSettings, Claim, Copies, DelayedInterrupts, Device, DeviceError, DeviceFailure, Link,
    LinkMonitor, XdpChannels, XdpFilter, XdpSettings,
};
use softclock_net::demux::HashKey;
use softclock_net::link::LinkAddress;
use softclock_net::routes::Routes;
use softclock_net::stack::{Architecture, Settings, Steering};

pub(super) use host::{HostParts, addresses as host_addresses};

use super::capture::Capture;
use super::driver::{Driver, Parts};
use super::interface::Opened;
use super::random::random;
use super::ring::ring_limit;
use super::{StackError, StackMechanism, StackOptions};
use crate::runtime::inner::Inner;

pub(super) fn open(options: &StackOptions) -> Result<Rc<Driver>, StackError> {
    Inner::current().map_err(StackError::Watch)?;
    if Driver::current().is_some() {
        return Err(StackError::Exists);
    }
    check_architecture(options)?;
    options.tcp.check().map_err(StackError::Tcp)?;
    let shared;
    let options = match &options.host_ports {
        None => options,
        Some(ports) => {
            shared = host::addressed(options, ports)?;
            &shared
        }
    };
    if options.addresses.is_empty() {
        return Err(StackError::NoAddress);
    }
    check_mtu(options)?;
    let routes = Routes::new(options.addresses.clone(), options.gateways.clone());
    let routes = routes.map_err(StackError::Routes)?;
    let OpenInterface {
        link,
        opened,
        claim,
        monitor,
        host,
    } = open_interface(options)?;
    let find = |error| StackError::Find(link.name().into(), error);
    let most = options.mtu.map_or(usize::MAX, usize::from);
    let mtu = most.min(link.mtu().map_err(find)? as usize);
    let link_address = match &host {
        Some(_) => LinkAddress(link.hardware_address().map_err(find)?),
        None => options.link_address.unwrap_or_else(random_link_address),
    };
    let mut settings = Settings::new(link_address, mtu);
    settings.asks_caller = host.is_some();
    settings.architecture = options.architecture;
    settings.channel = options.channel;
    settings.offloads_tcp = opened.takes_offloads();
    settings.tcp.clone_from(&options.tcp);
    if let Ok(threads @ 2..) = u32::try_from(options.threads) {
        settings.tcp = settings.tcp.divided(options.threads);
        settings.steering = Some(Steering::new(HashKey([random(), random()]), threads, 0));
    }
    // Behind the device, with which the receive work of some links begins.
    let delayed = options.interrupts.map(|delay| {
        let delayed = DelayedInterrupts::set(&link, delay);
        delayed.map_err(|error| StackError::Interrupts(link.name().into(), error))
    });
    let delayed = delayed.transpose()?;
    let key = HashKey([random(), random()]);
    let stack = softclock_net::stack::Stack::new(settings, routes, key);
    // Last, so that a stack that cannot be opened leaves no file.
    let capture = start_capture(options, &link)?;
    Driver::new(Parts {
        link,
        opened,
        claim,
        delayed,
        monitor,
        stack,
        capture,
        host,
        signalling: options.signalling,
    })
    .map_err(StackError::Watch)
}

fn start_capture(options: &StackOptions, link: &Link) -> Result<Option<Arc<Capture>>, StackError> {
    let Some(options) = &options.capture else {
        return Ok(None);
    };
    let runtime = Inner::current().map_err(StackError::Watch)?;
    let started = Capture::start(options, link.name(), runtime.clock.now());
    let failed = |error| StackError::Capture(options.path.clone(), error);
    (started.map(|capture| Some(Arc::new(capture)))).map_err(failed)
}

/// Every host must take packets of 576 bytes (RFC 1122, 3.3.2), and one of IPv6 of 1280 (RFC 8200, 5).
fn check_mtu(options: &StackOptions) -> Result<(), StackError> {
    let has_v6 = options
        .addresses
        .iter()
        .any(|prefix| prefix.address.is_ipv6());
    let least = if has_v6 { 1280 } else { 576 };
    match options.mtu {
        Some(mtu) if mtu < least => Err(StackError::MtuTooShort(mtu, least)),
        _ => Ok(()),
    }
}

/// Refuses NI-LRP, and the host's addresses, where no XDP program can demultiplex.
fn check_architecture(options: &StackOptions) -> Result<(), StackError> {
    let is_tap = options.interface.starts_with(TAP);
    let has_program = !is_tap && options.mechanism != StackMechanism::Packet;
    match options.architecture {
        Architecture::NiLrp if !has_program => Err(StackError::NeedsXdp),
        _ if options.host_ports.is_some() && !has_program => Err(StackError::HostNeedsXdp),
        _ => Ok(()),
    }
}

/// An interface that is open, with what is held for it.
struct OpenInterface {
    link: Link,
    opened: Opened,
    claim: Option<Claim>,
    monitor: Option<LinkMonitor>,
    host: Option<HostParts>,
}

fn open_interface(options: &StackOptions) -> Result<OpenInterface, StackError> {
    let name = &options.interface;
    if let Some(name) = name.strip_prefix(TAP) {
        // Creating it fails if the name is taken, so it needs no claim.
        let (link, device) = Device::create_tap(name).map_err(StackError::Open)?;
        if let Some(mtu) = options.mtu {
            let set = link.set_mtu(mtu.into());
            set.map_err(|error| StackError::Mtu(mtu, error))?;
        }
        return Ok(OpenInterface {
            link,
            opened: Opened::Devices(vec![device]),
            claim: None,
            // It reports its own end, and goes on if it is moved to another namespace.
            monitor: None,
            host: None,
        });
    }
    let link = Link::named(name).map_err(|error| StackError::Find(name.clone(), error))?;
    let claim = Claim::to(&link).map_err(|error| StackError::Claim(name.clone(), error))?;
    // Before the device is opened, whose program takes packets of the host.
    if options.host_ports.is_none() {
        check_host(&link, options)?;
    }
    let host = host::parts(&link, options)?;
    let monitor = match &host {
        Some(_) => LinkMonitor::with_addresses(&link),
        None => LinkMonitor::open(&link),
    };
    let monitor = monitor.map_err(StackError::Watch)?;
    let opened = match options.architecture {
        Architecture::NiLrp => open_channels(&link, options),
        _ => share(&link, options).map(Opened::Devices),
    };
    Ok(OpenInterface {
        link,
        opened: opened.map_err(StackError::Open)?,
        claim: Some(claim),
        monitor: Some(monitor),
        host,
    })
}

/// Opens a link with a channel for each socket.
fn open_channels(link: &Link, options: &StackOptions) -> Result<Opened, DeviceError> {
    let settings = ChannelSettings {
        link: XdpSettings {
            copies: Copies::Allowed,
            queue: None,
            filter: filter(options),
        },
        channels: options.sockets,
        limit: ring_limit(options.channel.packets),
        streams: options.listeners,
        // A channel that is shorter than a window makes losses of its own.
        stream_limit: ring_limit(options.tcp.channel.packets),
        common_limit: COMMON_LIMIT,
        peers: options.tcp.shared.proven_peers as u32,
    };
    let failed = |failure| DeviceError {
        interface: link.name().into(),
        failure,
    };
    let channels = XdpChannels::open(link, settings);
    let channels = channels.map_err(|error| failed(DeviceFailure::Xdp(error)))?;
    let long = channels.long_frames(LONG_FRAMES_BYTES);
    let long = long.map_err(|error| failed(DeviceFailure::Packet(error)))?;
    Ok(Opened::Channels(Arc::new(channels), long))
}

/// Opens a link, with all of its queues.
fn share(link: &Link, options: &StackOptions) -> Result<Vec<Device>, DeviceError> {
    let filter = filter(options);
    let xdp = |copies| Device::share_xdp_queues(link, copies, &filter);
    let packet = || Device::share_packet(link).map(|device| vec![device]);
    match options.mechanism {
        // Only its program leaves the host's own packets to the host.
        _ if options.host_ports.is_some() => xdp(Copies::Allowed),
        StackMechanism::Packet => packet(),
        StackMechanism::Xdp => xdp(Copies::Allowed),
        StackMechanism::Auto => match Device::check_queues_without_copies(link) {
            Ok(()) => xdp(Copies::Never).or_else(|_| packet()),
            Err(_) => packet(),
        },
    }
}

/// The frames that the stack takes from the host.
fn filter(options: &StackOptions) -> XdpFilter {
    let own = options.addresses.iter().map(|prefix| prefix.address);
    let addresses = own.collect();
    match &options.host_ports {
        // No group of all hosts: the filter would take its packets from the host, such as router advertisements.
        None => XdpFilter::Addresses(addresses),
        Some(ports) => XdpFilter::Ports {
            addresses,
            ports: ports.clone(),
        },
    }
}

/// Refuses an address that the host has on the same interface: both would answer for it.
fn check_host(link: &Link, options: &StackOptions) -> Result<(), StackError> {
    let host = link.addresses().unwrap_or_default();
    let mut own = options.addresses.iter().map(|prefix| prefix.address);
    match own.find(|own| host.iter().any(|(address, _)| address == own)) {
        Some(address) => Err(StackError::HostAddress(address)),
        None => Ok(()),
    }
}

/// A random address that is locally administered and of a single host.
fn random_link_address() -> LinkAddress {
    let [a, b, c, d, e, ..] = random().to_ne_bytes();
    LinkAddress([0x02, a, b, c, d, e])
}

/// The prefix of the name of a TAP device to create.
pub(super) const TAP: &str = "tap:";

/// The buffer in the kernel for frames with pending segmentation.
const LONG_FRAMES_BYTES: usize = 4 << 20;

/// The frames that wait in each other common channel of NI-LRP: as many as in those of the stack, into which the driver
/// moves them.
const COMMON_LIMIT: u32 = 128;
