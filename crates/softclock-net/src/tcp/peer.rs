//! The options of a connection: those that this end offers, and those that both ends agree on in the handshake.

use super::segment::{Flags, Options, Timestamps};

/// The options that this end offers with its SYN, or with its answer to a SYN.
///
/// ```
/// use softclock_net::tcp::peer::{Offer, PeerOptions};
///
/// let client = Offer::default();
/// let syn = client.syn_options(1000);
///
/// let server = Offer { window_scale: None, mss: 1220, ..Offer::default() };
/// let agreed = PeerOptions::negotiate(&server, client.syn_flags(), &syn, true);
/// assert_eq!((agreed.mss, agreed.window_scale), (1460, None));
/// assert_eq!(agreed.timestamps, Some(1000));
///
/// let answer = server.answer_options(&agreed, 5);
/// assert_eq!((answer.mss, answer.window_scale), (Some(1220), None));
/// assert_eq!(answer.timestamps.map(|times| times.echo), Some(1000));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The longest segment that this end takes, without options: the MTU of the interface less the fixed headers of IP
    /// and TCP (RFC 6691). The default is that of Ethernet and IPv4, 1460 bytes.
    pub mss: u16,
    /// The shift of this end's windows, at most 14 (RFC 7323, 2), or `None` to offer no scaling. The default is 7, with
    /// which a window of 8 MiB can be stated.
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgments are offered (RFC 2018). The default is yes.
    pub has_sack: bool,
    /// Whether time stamps are offered (RFC 7323, 3). The default is yes.
    pub has_timestamps: bool,
    /// The use of explicit congestion notification. The default is to accept it.
    pub ecn: EcnMode,
    /// The least segment size that the peer can impose. Smaller ones cost more work than they carry data, which an
    /// attacker can use (CVE-2019-11479). The default is 48 bytes, as in Linux (`tcp_min_snd_mss`).
    pub least_mss: u16,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            mss: 1460,
            window_scale: Some(7),
            has_sack: true,
            has_timestamps: true,
            ecn: EcnMode::Accept,
            least_mss: 48,
        }
    }
}

impl Offer {
    /// The options of a SYN that opens a connection. `timestamp` is the clock of the connection.
    pub fn syn_options(&self, timestamp: u32) -> Options {
        Options {
            mss: Some(self.mss),
            window_scale: self.own_shift(),
            is_sack_permitted: self.has_sack,
            timestamps: self.has_timestamps.then_some(Timestamps {
                value: timestamp,
                echo: 0,
            }),
            ..Options::default()
        }
    }

    /// The control bits of a SYN that opens a connection (RFC 3168, 6.1.1).
    pub fn syn_flags(&self) -> Flags {
        match self.ecn {
            EcnMode::Off | EcnMode::Accept => Flags::SYN,
            EcnMode::On => Flags::SYN | Flags::ECE | Flags::CWR,
        }
    }

    /// The options of the SYN-ACK: only those that the peer has offered, too. `timestamp` is the clock of the
    /// connection.
    pub fn answer_options(&self, peer: &PeerOptions, timestamp: u32) -> Options {
        Options {
            mss: Some(self.mss),
            window_scale: peer.window_scale.and(self.own_shift()),
            is_sack_permitted: peer.is_sack_permitted,
            timestamps: peer.timestamps.map(|echo| Timestamps {
                value: timestamp,
                echo,
            }),
            ..Options::default()
        }
    }

    /// The control bits of the SYN-ACK (RFC 3168, 6.1.1).
    pub fn answer_flags(peer: &PeerOptions) -> Flags {
        match peer.ecn {
            Ecn::Off => Flags::SYN | Flags::ACK,
            Ecn::Classic => Flags::SYN | Flags::ACK | Flags::ECE,
        }
    }

    /// The shift of this end's windows once the handshake is complete: 0 unless both ends scale.
    pub fn agreed_shift(&self, peer: &PeerOptions) -> u8 {
        peer.window_scale.and(self.own_shift()).unwrap_or(0)
    }

    fn own_shift(&self) -> Option<u8> {
        self.window_scale.map(|shift| shift.min(MOST_WINDOW_SCALE))
    }
}

/// The options that both ends agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerOptions {
    /// The longest segment that the peer takes, in bytes, counted without options: each segment carries this much data
    /// less the length of its options (RFC 6691). The path MTU may impose less.
    pub mss: u16,
    /// The shift of the peer's windows, at most 14. `None`: neither end scales its windows.
    pub window_scale: Option<u8>,
    /// Whether both ends understand selective acknowledgments.
    pub is_sack_permitted: bool,
    /// The newest time of the peer's clock (TS.Recent) if both ends send time stamps.
    pub timestamps: Option<u32>,
    /// The explicit congestion notification in use.
    pub ecn: Ecn,
}

impl PeerOptions {
    /// The options that an offer and the peer's SYN or SYN-ACK have in common. `flags` tell the two apart: a SYN-ACK
    /// accepts ECN by ECE alone (RFC 3168, 6.1.1). A SYN that crosses one's own is a SYN.
    pub fn negotiate(offer: &Offer, flags: Flags, options: &Options, is_v4: bool) -> Self {
        let own_shift = offer.window_scale;
        let mss = options.mss.unwrap_or(default_mss(is_v4));
        Self {
            mss: mss.max(offer.least_mss),
            window_scale: own_shift
                .and(options.window_scale)
                .map(|shift| shift.min(MOST_WINDOW_SCALE)),
            is_sack_permitted: offer.has_sack && options.is_sack_permitted,
            timestamps: options
                .timestamps
                .filter(|_| offer.has_timestamps)
                .map(|times| times.value),
            ecn: match offer.ecn {
                // This end's SYN has not offered what a SYN-ACK claims to accept.
                EcnMode::Accept if flags.contains(Flags::ACK) => Ecn::Off,
                EcnMode::Accept | EcnMode::On if states_ecn(flags) => Ecn::Classic,
                _ => Ecn::Off,
            },
        }
    }

    /// The shift of the peer's windows, 0 if neither end scales.
    pub fn window_shift(&self) -> u8 {
        self.window_scale.unwrap_or(0)
    }
}

/// Whether this end offers and accepts explicit congestion notification (RFC 3168, 6.1.1).
///
/// ```
/// use softclock_net::tcp::peer::{Ecn, EcnMode, Offer, PeerOptions};
/// use softclock_net::tcp::segment::{Flags, Options};
///
/// let offer = Offer { ecn: EcnMode::Accept, ..Offer::default() };
/// assert_eq!(offer.syn_flags(), Flags::SYN);
///
/// let syn = Flags::SYN | Flags::ECE | Flags::CWR;
/// let agreed = PeerOptions::negotiate(&offer, syn, &Options::default(), true);
/// assert_eq!(agreed.ecn, Ecn::Classic);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EcnMode {
    /// Never used.
    Off,
    /// Used if the peer's SYN offers it; SYNs of this end do not. This is `tcp_ecn=2` of Linux, and its default.
    #[default]
    Accept,
    /// Offered by SYNs of this end, too: `tcp_ecn=1` of Linux.
    On,
}

/// The explicit congestion notification of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// None: packets are not marked as capable of it.
    #[default]
    Off,
    /// One signal in each round trip (RFC 3168).
    Classic,
}

/// The segment size of a peer whose SYN does not state one (RFC 9293, 3.7.1).
pub const fn default_mss(is_v4: bool) -> u16 {
    match is_v4 {
        true => 536,
        false => 1220,
    }
}

/// The longest segment, without options, that fits into IP packets of `mtu` bytes (RFC 6691). At most 65 495 bytes over
/// IPv4.
pub const fn mss_of_mtu(mtu: usize, is_v4: bool) -> u16 {
    let headers = match is_v4 {
        true => 20 + 20,
        false => 40 + 20,
    };
    let most = match mtu > 65_535 {
        true => 65_535,
        false => mtu,
    };
    most.saturating_sub(headers) as u16
}

/// The longest shift of windows; longer ones count as this one (RFC 7323, 2.3).
pub const MOST_WINDOW_SCALE: u8 = 14;

/// Whether a SYN offers ECN, or a SYN-ACK accepts it.
fn states_ecn(flags: Flags) -> bool {
    match flags.contains(Flags::ACK) {
        true => flags.contains(Flags::ECE) && !flags.intersects(Flags::CWR),
        false => flags.contains(Flags::ECE | Flags::CWR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ecn_modes() -> impl Strategy<Value = EcnMode> {
        prop::sample::select(&[EcnMode::Off, EcnMode::Accept, EcnMode::On][..])
    }

    fn offers() -> impl Strategy<Value = Offer> {
        let options = (any::<u16>(), any::<Option<u8>>(), any::<[bool; 2]>());
        (options, ecn_modes()).prop_map(|((mss, window_scale, [has_sack, has_timestamps]), ecn)| {
            Offer {
                mss,
                window_scale,
                has_sack,
                has_timestamps,
                ecn,
                ..Offer::default()
            }
        })
    }

    proptest! {
        #[test]
        fn both_ends_agree_on_the_same_options(
            client in offers(),
            server in offers(),
            times in any::<[u32; 2]>(),
            is_v4 in any::<bool>(),
        ) {
            let syn = client.syn_options(times[0]);
            let at_server = PeerOptions::negotiate(&server, client.syn_flags(), &syn, is_v4);
            let answer = server.answer_options(&at_server, times[1]);
            let flags = Offer::answer_flags(&at_server);
            let at_client = PeerOptions::negotiate(&client, flags, &answer, is_v4);

            prop_assert_eq!(at_server.mss, client.mss.max(48));
            prop_assert_eq!(at_client.mss, server.mss.max(48));
            prop_assert_eq!(at_server.window_shift(), client.agreed_shift(&at_client));
            prop_assert_eq!(at_client.window_shift(), server.agreed_shift(&at_server));
            prop_assert_eq!(at_server.window_scale.is_some(), at_client.window_scale.is_some());
            prop_assert!(at_server.window_shift() <= 14 && at_client.window_shift() <= 14);
            prop_assert_eq!(at_server.is_sack_permitted, client.has_sack && server.has_sack);
            prop_assert_eq!(at_client.is_sack_permitted, at_server.is_sack_permitted);
            let have_times = client.has_timestamps && server.has_timestamps;
            prop_assert_eq!(at_server.timestamps, have_times.then_some(times[0]));
            prop_assert_eq!(at_client.timestamps, have_times.then_some(times[1]));
            prop_assert_eq!(at_client.ecn, at_server.ecn);
            let have_ecn = client.ecn == EcnMode::On && server.ecn != EcnMode::Off;
            prop_assert_eq!(at_client.ecn == Ecn::Classic, have_ecn);
        }
    }

    #[test]
    fn a_syn_without_a_segment_size_means_the_default_of_its_version() {
        for (is_v4, expected) in [(true, 536), (false, 1220)] {
            let none = Options::default();
            let agreed = PeerOptions::negotiate(&Offer::default(), Flags::SYN, &none, is_v4);
            assert_eq!(agreed.mss, expected);
        }
    }

    #[test]
    fn the_segment_size_leaves_room_for_the_headers() {
        assert_eq!(mss_of_mtu(1500, true), 1460);
        assert_eq!(mss_of_mtu(1500, false), 1440);
        assert_eq!(mss_of_mtu(1 << 20, true), 65_495);
        assert_eq!(mss_of_mtu(10, true), 0);
    }

    #[test]
    fn a_reflected_ecn_setup_is_no_acceptance() {
        // RFC 3168, 6.1.1: a broken peer reflects both bits of the SYN.
        let offer = Offer {
            ecn: EcnMode::On,
            ..Offer::default()
        };
        let reflected = Flags::SYN | Flags::ACK | Flags::ECE | Flags::CWR;
        let agreed = PeerOptions::negotiate(&offer, reflected, &Options::default(), true);
        assert_eq!(agreed.ecn, Ecn::Off);
    }

    #[test]
    fn an_acceptance_without_an_offer_is_none() {
        for (ecn, expected) in [
            (EcnMode::Off, Ecn::Off),
            (EcnMode::Accept, Ecn::Off),
            (EcnMode::On, Ecn::Classic),
        ] {
            let offer = Offer {
                ecn,
                ..Offer::default()
            };
            let flags = Flags::SYN | Flags::ACK | Flags::ECE;
            let agreed = PeerOptions::negotiate(&offer, flags, &Options::default(), true);
            assert_eq!(agreed.ecn, expected);
        }
    }
}
