//! Port names: an existing interface, or a TAP device to create.

use softclock_linux::link::{Claim, Link};

use super::PortError;

/// A port that is not open yet.
#[derive(Clone, Debug)]
pub enum PortSpec {
    /// An existing interface.
    Link(Link),
    /// A TAP device of this name, to be created.
    Tap(String),
}

impl PortSpec {
    /// Parses a name: `tap:NAME` is a TAP device to create, any other name an existing interface. Interface names
    /// cannot contain a colon.
    ///
    /// # Errors
    /// [`PortError::Find`] if no interface has this name.
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

    /// The interface; `None` for a TAP device, which does not exist yet.
    pub fn link(&self) -> Option<&Link> {
        match self {
            Self::Link(link) => Some(link),
            Self::Tap(_) => None,
        }
    }

    /// Keeps other bridges off the interface until the claim is dropped or the process ends. `None` for a TAP device:
    /// its name is enough, since creating it fails if the name is taken.
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

    /// Whether both ports are the same interface.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Link(one), Self::Link(other)) => one.index() == other.index(),
            (Self::Tap(one), Self::Tap(other)) => one == other,
            _ => false,
        }
    }
}
