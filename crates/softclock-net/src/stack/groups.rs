//! The multicast groups of endpoints.

use core::fmt;
use core::net::IpAddr;
use core::ops::Deref;

use super::Stack;
use super::endpoint::EndpointId;
use crate::routes::RouteError;

/// Why an endpoint cannot join or leave a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GroupError {
    /// No endpoint has this number.
    Closed,
    /// The address is not that of a group of the endpoint's version of IP.
    NotAGroup,
    /// The endpoint is a member already.
    Member,
    /// The endpoint is not a member.
    NotMember,
    /// The stack has joined the largest number of groups.
    TooMany,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the endpoint is closed",
            Self::NotAGroup => "the address is not a multicast group of the socket's version of IP",
            Self::Member => "the socket has joined the group already",
            Self::NotMember => "the socket has not joined the group",
            Self::TooMany => "the stack has joined the largest number of groups: leave one first",
        })
    }
}

impl core::error::Error for GroupError {}

impl<B: Deref<Target = [u8]>> Stack<B> {
    /// Joins a multicast group: from now on the stack receives datagrams to it, until all members have left it or are
    /// closed.
    ///
    /// Datagrams to a group that the stack receives go to all endpoints of their port that are bound to the group or to
    /// all addresses, members or not, as in Linux (`IP_MULTICAST_ALL`). The stack sends no reports (IGMP, MLD): see
    /// [`Routes::join`](crate::routes::Routes::join).
    ///
    /// # Errors
    /// [`GroupError`], all but [`GroupError::NotMember`].
    pub fn join(&mut self, id: EndpointId, group: IpAddr) -> Result<(), GroupError> {
        let endpoint = self.endpoints.get_mut(id.0).ok_or(GroupError::Closed)?;
        if endpoint.local.0.is_ipv4() != group.is_ipv4() {
            return Err(GroupError::NotAGroup);
        }
        if endpoint.groups.contains(&group) {
            return Err(GroupError::Member);
        }
        match self.routes.join(group) {
            Ok(_) => {
                endpoint.groups.push(group);
                Ok(())
            }
            Err(RouteError::NotAGroup(_)) => Err(GroupError::NotAGroup),
            Err(_) => Err(GroupError::TooMany),
        }
    }

    /// Leaves a group that the endpoint has [joined](Self::join).
    ///
    /// # Errors
    /// [`GroupError::Closed`] and [`GroupError::NotMember`].
    pub fn leave(&mut self, id: EndpointId, group: IpAddr) -> Result<(), GroupError> {
        let endpoint = self.endpoints.get_mut(id.0).ok_or(GroupError::Closed)?;
        let mut own = endpoint.groups.iter();
        let place = own.position(|own| *own == group);
        endpoint
            .groups
            .swap_remove(place.ok_or(GroupError::NotMember)?);
        self.routes.leave(group);
        Ok(())
    }
}
