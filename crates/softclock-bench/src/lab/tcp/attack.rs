//! Floods on a web server and its neighbors.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use super::stage::Stage;
use super::subject::{PORT, SILENT_PORT};
use crate::lab::frames::{datagram, syns};
use crate::lab::lrp::Flood;

/// A kind of flood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// SYNs to a port whose listener never accepts, as in *LRP*.
    SynsElsewhere,
    /// Datagrams to a third socket, which is never read.
    Datagrams,
    /// SYNs to the port of the server itself.
    Syns,
}

impl Attack {
    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynsElsewhere => "SYNs to another port",
            Self::Datagrams => "datagrams to a third port",
            Self::Syns => "SYNs to the served port",
        }
    }

    /// Starts it with nothing to send yet. SYNs have many sources.
    ///
    /// # Errors
    /// The devices cannot be opened.
    pub fn start(self, stage: &Stage) -> io::Result<Flood> {
        let (ends, server) = (stage.ends(), stage.address());
        let at = |port| SocketAddrV4::new(*server.ip(), port);
        let frames = match self {
            Self::SynsElsewhere => syns(ends, at(SILENT_PORT), SOURCES),
            Self::Syns => syns(ends, at(PORT), SOURCES),
            Self::Datagrams => {
                let source = SocketAddrV4::new(Ipv4Addr::new(10, 81, 0, 1), 9);
                vec![datagram(ends, source, at(SILENT_PORT))?]
            }
        };
        Flood::with(&Arc::clone(&stage.network), frames)
    }
}

/// More than any queue of half-open connections holds.
const SOURCES: u32 = 32_768;
