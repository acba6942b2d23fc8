//! The host's addresses on a link.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use rustix::net::netdevice;

use super::{Link, any_socket};

impl Link {
    /// Lists the host's addresses on this link, each with the length of its network prefix in bits; getifaddrs(3).
    ///
    /// # Errors
    /// `ENODEV` if the link was deleted; those of getifaddrs(3).
    pub fn addresses(&self) -> io::Result<Vec<(IpAddr, u32)>> {
        let any = any_socket()?;
        let name = netdevice::index_to_name(&any, self.index())?;
        let list = List::of_all()?;
        let mut addresses = Vec::new();
        let mut next = list.0;
        // SAFETY: the list's entries live as long as it, and its end is null.
        while let Some(entry) = unsafe { next.as_ref() } {
            next = entry.ifa_next;
            // SAFETY: each entry has a name that ends with zero and lives as long as the list.
            let label = unsafe { CStr::from_ptr(entry.ifa_name) }.to_bytes();
            // An IPv4 address may be listed under a label, such as eth0:1, instead of the name; see ip-address(8).
            let is_own = label.split(|&byte| byte == b':').next() == Some(name.as_bytes());
            // SAFETY: both are null or socket addresses of the list, whole for their family.
            let found = unsafe { (ip(entry.ifa_addr), ip(entry.ifa_netmask)) };
            if let (true, (Some(address), mask)) = (is_own, found) {
                addresses.push((address, mask.map_or(0, prefix)));
            }
        }
        Ok(addresses)
    }
}

/// The list of getifaddrs(3): the addresses of all links. Freed on drop.
struct List(*mut libc::ifaddrs);

impl List {
    fn of_all() -> io::Result<Self> {
        let mut list = ptr::null_mut();
        // SAFETY: the call writes a pointer to the list that it makes.
        match unsafe { libc::getifaddrs(&raw mut list) } {
            0 => Ok(Self(list)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is getifaddrs' own, and freed once.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// The IP address in a socket address; `None` for other families, and for null.
///
/// # Safety
/// The pointer is null, or points to a socket address with all bytes of its family.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: not null, and any socket address begins with its family.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in`.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a `sockaddr_in6`.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// The prefix length of a network mask: the number of bits set.
fn prefix(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_its_address() {
        let addresses = Link::named("lo").unwrap().addresses().unwrap();
        if addresses.is_empty() {
            softclock_testing::skip!("the loopback interface is down here");
        }
        let local = (Ipv4Addr::LOCALHOST.into(), 8);
        assert!(addresses.contains(&local), "{addresses:?}");
    }
}
