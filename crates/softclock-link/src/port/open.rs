//! Opens the two ports of a bridge by one mechanism.

use softclock_linux::link::{
    Copies, Device, DeviceError, DeviceFailure, Link, XdpError, XdpMemory, XdpStep,
};

use super::PortSpec;

/// The mechanism to open links by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MechanismChoice {
    /// AF_XDP if both drivers support it without copying and without losing VLAN tags, else AF_PACKET.
    Auto,
    /// AF_PACKET.
    Packet,
    /// AF_XDP, in copy mode if the driver has no other.
    Xdp,
}

/// The mechanism that the ports were opened by, and its reason.
#[derive(Debug)]
pub enum Opened {
    /// Both ports are TAP devices.
    Tap,
    /// AF_PACKET, as chosen.
    Packet,
    /// AF_XDP.
    Xdp,
    /// AF_PACKET, because AF_XDP without copies failed with this error.
    PacketRatherThanXdp(DeviceError),
}

/// A link and its open device.
pub(super) type Linked = (Link, Device);

/// Opens both ports by one mechanism, creating TAP devices as needed; returns the mechanism and its reason.
pub(super) fn open_both(
    ports: &[PortSpec; 2],
    choice: MechanismChoice,
) -> Result<([Linked; 2], Opened), DeviceError> {
    if ports.iter().all(|port| port.link().is_none()) {
        return Ok((both(ports, Device::open_packet)?, Opened::Tap));
    }
    match choice {
        MechanismChoice::Packet => Ok((both(ports, Device::open_packet)?, Opened::Packet)),
        MechanismChoice::Xdp => {
            let opened = both_in_one_memory(ports, |memory, link| {
                Device::open_xdp(memory, link, Copies::Allowed)
            });
            // A driver without zero-copy mode has no common memory with one that has it.
            let opened = opened.or_else(|_| {
                both(ports, |link| {
                    Device::open_xdp(&memory_for(1, link)?, link, Copies::Allowed)
                })
            });
            Ok((opened?, Opened::Xdp))
        }
        MechanismChoice::Auto => match both_without_copies(ports) {
            Ok(opened) => Ok((opened, Opened::Xdp)),
            Err(why) => {
                let opened = both(ports, Device::open_packet)?;
                Ok((opened, Opened::PacketRatherThanXdp(why)))
            }
        },
    }
}

fn both_without_copies(ports: &[PortSpec; 2]) -> Result<[Linked; 2], DeviceError> {
    // Opening without copies resets the device, so both links are checked first.
    let mut links = ports.iter().filter_map(PortSpec::link);
    links.try_for_each(Device::check_xdp_without_copies)?;
    both_in_one_memory(ports, Device::open_xdp_without_copies)
}

/// Opens the ports by AF_XDP so that frames pass from one to the other without a copy.
fn both_in_one_memory(
    ports: &[PortSpec; 2],
    take: impl Fn(&XdpMemory, &Link) -> Result<Device, DeviceError>,
) -> Result<[Linked; 2], DeviceError> {
    let links: Vec<&Link> = ports.iter().filter_map(PortSpec::link).collect();
    let memory = memory_for(links.len(), links[0])?;
    both(ports, |link| take(&memory, link))
}

/// Memory of AF_XDP for this number of ports; its error is that of opening `link`.
fn memory_for(ports: usize, link: &Link) -> Result<XdpMemory, DeviceError> {
    XdpMemory::new(ports).map_err(|error| DeviceError {
        interface: link.name().into(),
        failure: DeviceFailure::Xdp(XdpError::Failed(XdpStep::Socket, error)),
    })
}

/// Opens the ports by `take`, links that exist first: if one of them fails, no TAP device has been created.
fn both(
    [a, b]: &[PortSpec; 2],
    take: impl Fn(&Link) -> Result<Device, DeviceError>,
) -> Result<[Linked; 2], DeviceError> {
    let open = |port: &PortSpec| match port {
        PortSpec::Link(link) => Ok((link.clone(), take(link)?)),
        PortSpec::Tap(name) => Device::create_tap(name),
    };
    match (a, b) {
        (PortSpec::Tap(_), PortSpec::Link(_)) => {
            let b = open(b)?;
            Ok([open(a)?, b])
        }
        _ => Ok([open(a)?, open(b)?]),
    }
}
