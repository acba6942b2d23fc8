//! The number of a link's queues.

use std::fs;
use std::io;

use super::Link;

impl Link {
    /// The number of receive queues.
    ///
    /// # Errors
    /// `NotFound` if `/sys` shows another network namespace, and the driver does not tell the number.
    pub fn receive_queues(&self) -> io::Result<usize> {
        Ok(self.queues()?.receive)
    }

    /// Whether the link sends by a queue of this number. Also true if that cannot be found out.
    pub(super) fn has_transmit_queue(&self, number: u32) -> bool {
        let queues = self.queues();
        queues.map_or(true, |queues| (number as usize) < queues.transmit)
    }

    fn queues(&self) -> io::Result<Queues> {
        self.listed_queues().or_else(|error| {
            // This follows the network namespace, but not all drivers have it.
            self.channels().map_err(|_| error)
        })
    }

    fn listed_queues(&self) -> io::Result<Queues> {
        let mut queues = Queues::default();
        for entry in fs::read_dir(self.sysfs()?.join("queues"))? {
            let name = entry?.file_name();
            queues.receive += usize::from(name.as_encoded_bytes().starts_with(b"rx-"));
            queues.transmit += usize::from(name.as_encoded_bytes().starts_with(b"tx-"));
        }
        Ok(queues)
    }

    /// The channels of ethtool(8).
    fn channels(&self) -> io::Result<Queues> {
        let mut channels = EthtoolChannels {
            command: ETHTOOL_GCHANNELS,
            ..EthtoolChannels::default()
        };
        // SAFETY: this command uses this structure.
        unsafe { self.ask_ethtool((&raw mut channels).cast())? };
        let EthtoolChannels { counts, .. } = channels;
        Ok(Queues {
            receive: (counts.receive + counts.combined) as usize,
            transmit: (counts.transmit + counts.combined) as usize,
        })
    }
}

/// Queues in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Queues {
    receive: usize,
    transmit: usize,
}

/// `struct ethtool_channels` (include/uapi/linux/ethtool.h).
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    command: u32,
    most: ChannelCounts,
    counts: ChannelCounts,
}

#[repr(C)]
#[derive(Default)]
struct ChannelCounts {
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;

#[cfg(test)]
mod tests {
    use super::*;
    use softclock_testing::lab::VethPair;

    /// Both ways to count agree.
    #[test]
    fn queues_are_counted() {
        softclock_testing::require!("ip");
        let pair = match VethPair::with_queues_each(3, 2) {
            Ok(pair) => pair,
            Err(reason) => softclock_testing::skip!("{reason}"),
        };
        let link = Link::named(&pair.names()[0]).unwrap();
        let expected = Queues {
            receive: 3,
            transmit: 2,
        };
        assert_eq!(link.channels().unwrap(), expected);
        match link.listed_queues() {
            Ok(queues) => assert_eq!(queues, expected),
            Err(_) => softclock_testing::in_part!("/sys shows another network namespace"),
        }
        assert!(link.has_transmit_queue(1) && !link.has_transmit_queue(2));
    }
}
