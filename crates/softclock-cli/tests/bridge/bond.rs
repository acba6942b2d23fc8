use crate::lab::{Place, lab};
use crate::ping::ping;

/// A bond is paced like any other interface.
#[test]
#[ignore = "needs a kernel with bonds (CONFIG_BONDING)"]
fn a_bond_is_paced() {
    let lab = lab!();
    lab.configure(Place::Middle, "link add bond0 type bond mode active-backup");
    lab.configure(Place::Middle, "link set veB down");
    lab.configure(Place::Middle, "link set veB master bond0");
    lab.configure(Place::Middle, "link set bond0 up");
    let bridge = lab.bridge_between("pace", ["veA", "bond0"], &["--class", "rate 20mbit"]);
    assert_eq!(ping(&lab, "10.77.0.2", 5).numbers.len(), 5);
    assert_eq!(ping(&lab, "fd77::2", 5).numbers.len(), 5);
    for arguments in ["-c 10.77.0.2", "-c 10.77.0.2 -R"] {
        let rate = lab.iperf(5201, arguments);
        assert!(
            rate > 1.0 && rate < 25.0,
            "{arguments}: {rate} Mbit/s of 20"
        );
    }
    bridge.end();
}
