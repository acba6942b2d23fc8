//! Ports as they are named: an interface that exists, or a TAP device to be made.

use softclock_linux::link::{Claim, Link};

use super::PortError;

/// Where frames come from and go to, before it is opened.
#[derive(Clone, Debug)]
pub enum PortSpec {
    /// A link that exists.
    Link(Link),
    /// A TAP device of this name, to be made.
    Tap(String),
}

impl PortSpec {
    /// The port that a name stands for: `tap:NAME` for a TAP device, else an interface. No interface's name has a
    /// colon.
    ///
    /// # Errors
    /// [`PortError::Find`] if there is no such interface.
    pub fn named(name: &str) -> Result<Self, PortError> {
        if let Some(name) = name.strip_prefix("tap:") {
            return Ok(Self::Tap(name.into()));
        }
        Link::named(name)
            .map(Self::Link)
            .map_err(|error| PortError::Find {
                interface: name.into(),
                error,
            })
    }

    /// The link, if it exists already.
    pub fn link(&self) -> Option<&Link> {
        match self {
            Self::Link(link) => Some(link),
            Self::Tap(_) => None,
        }
    }

    /// Keeps other bridges from the link until the claim, or the process, ends. `None` for a device to be made, which
    /// its name claims.
    ///
    /// # Errors
    /// [`PortError::Claim`] if another bridge has it.
    pub fn claim(&self) -> Result<Option<Claim>, PortError> {
        let Some(link) = self.link() else {
            return Ok(None);
        };
        Claim::to(link).map(Some).map_err(|error| PortError::Claim {
            interface: link.name().into(),
            error,
        })
    }

    /// Whether both are one interface.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Link(one), Self::Link(other)) => one.index() == other.index(),
            (Self::Tap(one), Self::Tap(other)) => one == other,
            _ => false,
        }
    }
}
