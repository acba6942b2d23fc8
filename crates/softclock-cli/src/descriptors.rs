//! Divides the descriptors of the process between connections and files.

/// Connections of clients that `descriptors` allow. They get half; the rest is for the sources of responses (files, or
/// connections to upstreams), and a few for other uses.
pub(crate) fn connections_for(descriptors: u64) -> usize {
    usable(descriptors) / 2
}

/// Files, or connections to upstreams, that may be open beside `connections` clients: the rest of the descriptors.
pub(crate) fn sources_for(descriptors: u64, connections: usize) -> usize {
    usable(descriptors).saturating_sub(connections).max(1)
}

fn usable(descriptors: u64) -> usize {
    let usable = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(2);
    usize::try_from(usable).unwrap_or(usize::MAX)
}

const RESERVED_DESCRIPTORS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_their_sources() {
        assert_eq!(connections_for(1024), 480);
        assert_eq!(connections_for(10), 1);
        assert_eq!(sources_for(1024, 480), 480);
        assert_eq!(sources_for(1024, 7), 953);
        assert_eq!(sources_for(10, 1), 1);
    }
}
