//! Behaviour of AF_XDP alone.

use crate::lab::{Place, xdp_lab};
use crate::ping::ping;

/// Frames for a link without carrier are dropped, not kept for later.
#[test]
fn frames_for_a_link_without_carrier_are_counted() {
    let lab = xdp_lab!();
    let bridge = lab.bridge("wan", &["--mechanism", "xdp"]);
    assert_eq!(ping(&lab, "10.77.0.2", 2).numbers.len(), 2);
    lab.configure(Place::East, "link set east down");
    lab.run(Place::West, "ping -q -f -c 20 -l 20 -W 1 10.77.0.2");
    let report = bridge.end();
    let refused = &report["directions"][1]["port_drops"]["refused by the link"];
    assert!(refused.as_u64() >= Some(20), "{report}");
}
