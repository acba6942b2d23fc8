//! Finds the host's addresses and routes that stop working while a bridge holds their interfaces, and asks the user
//! whether to start.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use softclock_link::PortSpec;
use softclock_linux::link::Link;

use super::{BridgeError, BridgeOptions};
use crate::logging;

/// Warns of the addresses and routes that stop working, and asks whether to start. Without a terminal, only `--yes`
/// agrees.
pub(super) fn agree(ports: [&PortSpec; 2], options: &BridgeOptions) -> Result<(), BridgeError> {
    let routes = [
        fs::read_to_string("/proc/net/route").map(|table| routes4(&table)),
        fs::read_to_string("/proc/net/ipv6_route").map(|table| routes6(&table)),
    ];
    // Kernels without IPv6 have no `/proc/net/ipv6_route`.
    let routes: Vec<Route> = routes.into_iter().flatten().flatten().collect();
    let mut links = Vec::new();
    for link in ports.into_iter().filter_map(PortSpec::link) {
        add_with_uppers(link, &mut links);
    }
    let uses: Vec<_> = links
        .iter()
        .filter_map(|link| use_of(link, &routes))
        .collect();
    if uses.is_empty() {
        return Ok(());
    }
    let warning = format!(
        "while the bridge runs, this does not work: {}",
        uses.join("; ")
    );
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if options.yes {
        if !options.quiet {
            logging::note(&warning);
        }
        return Ok(());
    }
    if can_ask {
        logging::ask(&format!("{warning}\nGo on? [y/N]"));
        let mut answer = String::new();
        let _ = io::stdin().lock().read_line(&mut answer);
        return match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(BridgeError("not started".into())),
        };
    }
    Err(BridgeError(format!(
        "{warning}; give --yes to start anyway"
    )))
}

/// Adds the link and all links above it (VLANs, bridges, bonds), each once.
fn add_with_uppers(link: &Link, links: &mut Vec<Link>) {
    if links.iter().any(|known| known.index() == link.index()) {
        return;
    }
    links.push(link.clone());
    for upper in link.uppers() {
        add_with_uppers(&upper, links);
    }
}

/// Describes the addresses and routes of a link; `None` if it has neither. Link-local addresses of IPv6 do not count,
/// since every link has one.
fn use_of(link: &Link, routes: &[Route]) -> Option<String> {
    let addresses = link.addresses().map(|addresses| {
        let addresses = addresses
            .into_iter()
            .filter(|(address, _)| !is_of_link_alone(address));
        addresses
            .map(|(address, prefix)| format!("{address}/{prefix}"))
            .collect()
    });
    let routes = routes.iter().filter(|route| route.link == link.name());
    let routes = routes.map(|route| route.text.clone()).collect();
    sentence(link.name(), addresses, routes)
}

/// Addresses that cannot be read may be there, so they count.
fn sentence(link: &str, addresses: io::Result<Vec<String>>, routes: Vec<String>) -> Option<String> {
    let part = |one: &str, several: &str, names: Vec<String>| match names.len() {
        0 => None,
        1 => Some(format!("{one} {}", names[0])),
        count @ ..=MOST_NAMES => Some(format!("{several} {}", names[..count].join(", "))),
        count => {
            let (first, more) = (names[..MOST_NAMES].join(", "), count - MOST_NAMES);
            Some(format!("{several} {first} and {more} more"))
        }
    };
    let addresses = addresses.map_or_else(
        |error| Some(format!("addresses, if any, that cannot be read ({error})")),
        |addresses| part("address", "addresses", addresses),
    );
    let routes = part("route", "routes", routes);
    let parts: Vec<_> = addresses.into_iter().chain(routes).collect();
    (!parts.is_empty()).then(|| format!("{link} has the {}", parts.join(" and the ")))
}

/// A route whose packets leave by a link.
#[derive(Debug, PartialEq)]
struct Route {
    link: String,
    text: String,
}

impl Route {
    fn new(link: &str, network: IpAddr, prefix: u32, gateway: IpAddr) -> Self {
        let mut text = match prefix {
            0 if network.is_ipv4() => "default".to_owned(),
            0 => "default (IPv6)".to_owned(),
            _ => format!("{network}/{prefix}"),
        };
        if !gateway.is_unspecified() {
            text += &format!(" via {gateway}");
        }
        Self {
            link: link.to_owned(),
            text,
        }
    }
}

/// Parses `/proc/net/route`: link, destination, gateway, flags, three counts, mask.
fn routes4(table: &str) -> Vec<Route> {
    let address = |hex: &str| -> Option<Ipv4Addr> {
        // The kernel prints the address as a number in the byte order of its memory.
        Some(u32::from_str_radix(hex, 16).ok()?.to_ne_bytes().into())
    };
    let route = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [link, network, gateway, flags, _, _, _, mask, ..] = fields[..] else {
            return None;
        };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let prefix = address(mask)?.to_bits().count_ones();
        let (network, gateway) = (address(network)?.into(), address(gateway)?.into());
        (flags & REJECTS == 0).then(|| Route::new(link, network, prefix, gateway))
    };
    table.lines().skip(1).filter_map(route).collect()
}

/// Parses `/proc/net/ipv6_route`: destination and length, source and length, gateway, three counts, flags, link.
fn routes6(table: &str) -> Vec<Route> {
    let address = |hex: &str| Some(Ipv6Addr::from(u128::from_str_radix(hex, 16).ok()?).into());
    let route = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [network, prefix, _, _, gateway, _, _, _, flags, link] = fields[..] else {
            return None;
        };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let prefix = u32::from_str_radix(prefix, 16).ok()?;
        let (network, gateway): (IpAddr, IpAddr) = (address(network)?, address(gateway)?);
        let is_useful = flags & (REJECTS | OF_OWN_ADDRESS) == 0
            && !network.is_multicast()
            && !is_of_link_alone(&network);
        is_useful.then(|| Route::new(link, network, prefix, gateway))
    };
    table.lines().filter_map(route).collect()
}

fn is_of_link_alone(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// include/uapi/linux/route.h: RTF_REJECT.
const REJECTS: u32 = 0x200;
/// include/uapi/linux/ipv6_route.h: RTF_LOCAL and RTF_ANYCAST.
const OF_OWN_ADDRESS: u32 = 0x8010_0000;

/// Limit of the addresses or routes of a link that the warning names.
const MOST_NAMES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_routes() {
        let hex = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let line = |network, gateway, flags: &str, mask| {
            let (network, gateway, mask) = (hex(network), hex(gateway), hex(mask));
            format!("eth0\t{network}\t{gateway}\t{flags}\t0\t0\t0\t{mask}\t0\t0\t0\n")
        };
        let any = [0; 4];
        let table = ["Iface\tDestination\n".to_owned()]
            .into_iter()
            .chain([
                line(any, [192, 0, 2, 1], "0003", any),
                line([192, 0, 2, 0], any, "0001", [255, 255, 255, 0]),
                line([10, 0, 0, 0], any, "0201", [255, 0, 0, 0]),
            ])
            .collect::<String>();
        let routes = routes4(&table);
        let texts: Vec<_> = routes.iter().map(|route| route.text.as_str()).collect();
        assert_eq!(texts, ["default via 192.0.2.1", "192.0.2.0/24"]);
        assert!(routes.iter().all(|route| route.link == "eth0"));

        let none = "0".repeat(32);
        let line = |network: &str, prefix, flags| {
            format!(
                "{network:0<32} {prefix} {none} 00 {none} 00000100 00000001 00000000 {flags}     eth0\n"
            )
        };
        let table = line("fd77", "40", "00000001")
            + &line("fd770000000000000000000000000001", "80", "80200001")
            + &line("fe80", "40", "00000001")
            + &line("ff00", "08", "00000001")
            + &line("", "00", "00000003");
        let texts: Vec<_> = routes6(&table)
            .into_iter()
            .map(|route| route.text)
            .collect();
        assert_eq!(texts, ["fd77::/64", "default (IPv6)"]);
    }

    #[test]
    fn what_stops_is_named() {
        let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(sentence("a", Ok(vec![]), vec![]), None);
        assert_eq!(
            sentence("a", Ok(names(1)), names(2)).as_deref(),
            Some("a has the address 0 and the routes 0, 1")
        );
        assert_eq!(
            sentence("a", Ok(names(2)), vec![]).as_deref(),
            Some("a has the addresses 0, 1")
        );
        let many = sentence("a", Ok(vec![]), names(10)).unwrap();
        assert!(many.ends_with("6, 7 and 2 more"), "{many}");
    }

    #[test]
    fn what_cannot_be_read_may_be_there() {
        let error = io::Error::other("no memory");
        assert_eq!(
            sentence("a", Err(error), vec![]).as_deref(),
            Some("a has the addresses, if any, that cannot be read (no memory)")
        );
    }
}
