use super::*;
extern crate std;
#[test]
fn sizes() {
    std::println!(
        "sender {} controller {} pacer {} queue {} stats {} limits {} rtt {} reord {} undo {} tlp {} flags {} flight {} record {}",
        size_of::<Sender>(),
        size_of::<Controller>(),
        size_of::<Pacer>(),
        size_of::<SendQueue>(),
        size_of::<SendStats>(),
        size_of::<Limits>(),
        size_of::<RoundTrip>(),
        size_of::<Reordering>(),
        size_of::<Undo>(),
        size_of::<TailProbe>(),
        size_of::<Flags>(),
        size_of::<Flight>(),
        size_of::<scoreboard::Record>()
    );
}
