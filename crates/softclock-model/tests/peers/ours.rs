//! The end with softclock's stack.

use core::time::Duration;

use bytes::Bytes;
use softclock_core::Instant;
use softclock_model::host::{Host, Version, host};
use softclock_net::checksum::Verify;
use softclock_net::stack::{Architecture, TcpError, TcpId, TcpListenSettings, TcpListenerId};
use softclock_net::tcp::challenge::ChallengeSettings;
use softclock_net::tcp::congestion::Algorithm;
use softclock_net::tcp::connection::Error;
use softclock_net::tcp::settings::Settings;
use softclock_net::tcp::state::State;

use crate::random::Random;
use crate::world::{End, Read, Scale, client_port, server_port};

/// The settings.
#[derive(Clone, Debug)]
pub(crate) struct OursPlan {
    architecture: Architecture,
    mtu: usize,
    tcp: Settings,
    challenges: ChallengeSettings,
}

impl OursPlan {
    /// The defaults, without limits on the answers to segments that may be forged.
    pub(crate) fn answering_all() -> Self {
        let mut challenges = ChallengeSettings::default();
        challenges.interval = Duration::ZERO;
        Self {
            architecture: Architecture::SoftLrp,
            mtu: 1500,
            tcp: Settings::default(),
            challenges,
        }
    }

    pub(crate) fn random(random: &mut Random, scale: &Scale) -> Self {
        let mut tcp = Settings::default();
        tcp.has_sack = random.chance(700);
        tcp.has_timestamps = random.chance(700);
        tcp.has_window_scale = random.chance(800);
        // A peer that is reset while all is acknowledged would never learn of it otherwise.
        tcp.keep_alive.is_on = true;
        tcp.keep_alive.idle = Duration::from_secs(1 + random.within(0..=scale.idle_seconds));
        tcp.keep_alive.interval = Duration::from_secs(1 + scale.idle_seconds / 10);
        tcp.keep_alive.probes = 30;
        tcp.send.retries = 40;
        tcp.send.has_nagle = random.chance(600);
        tcp.send.congestion.algorithm = random.pick(&[Algorithm::Cubic, Algorithm::NewReno]);
        tcp.orphan_timeout = Duration::from_secs(3600);
        tcp.fin_wait_2 = Duration::from_secs(3600);
        if random.chance(300) {
            tcp.receive.buffer_bytes = random.magnitude(1000..=100_000) as u32;
            tcp.receive.most_buffer_bytes = tcp.receive.buffer_bytes;
        }
        if random.chance(300) {
            tcp.send.buffer = random.magnitude(500..=100_000) as u32;
            tcp.send.most_buffer = tcp.send.buffer;
        }
        Self {
            architecture: random.pick(&Architecture::ALL),
            mtu: random.pick(&[1500, 1500, 576, 1280]),
            tcp,
            challenges: ChallengeSettings::default(),
        }
    }
}

pub(crate) struct Ours {
    host: Host,
    listeners: Vec<TcpListenerId>,
    ids: Vec<Option<TcpId>>,
    /// Whether TIME-WAIT, which takes a minute, counts as closed.
    is_hasty: bool,
}

impl Ours {
    pub(crate) fn new(
        plan: &OursPlan,
        version: Version,
        key: u64,
        now: Instant,
        number: usize,
        opens: bool,
        is_hasty: bool,
    ) -> Self {
        let mut host = host(1, key, |settings| {
            settings.architecture = plan.architecture;
            settings.mtu = match version {
                Version::V4 => plan.mtu,
                Version::V6 => plan.mtu.max(LEAST_MTU_V6),
            };
            settings.tcp.connection = plan.tcp.clone();
            settings.tcp.shared.challenges = plan.challenges;
        });
        let (mut listeners, mut ids) = (Vec::new(), vec![None; number]);
        for (connection, id) in ids.iter_mut().enumerate() {
            if opens {
                let local = version.socket(1, client_port(connection));
                let remote = version.socket(2, server_port(connection));
                *id = Some(host.tcp_connect(now, Some(local), remote, None).unwrap());
            } else {
                let local = version.socket(1, server_port(connection));
                let settings = TcpListenSettings::with_backlog(2);
                listeners.push(host.tcp_listen(local, settings).unwrap());
            }
        }
        Self {
            host,
            listeners,
            ids,
            is_hasty,
        }
    }

    fn id(&self, connection: usize) -> TcpId {
        self.ids[connection].expect("it is open")
    }
}

impl End for Ours {
    fn on_frame(&mut self, now: Instant, frame: Vec<u8>) {
        self.host.on_frame(now, now, frame, Verify::Yes);
    }

    fn work(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for _ in 0..10_000 {
            let mut is_silent = true;
            while self.host.process(now, 8) > 0 {
                is_silent = false;
            }
            if self.host.next_timeout().is_some_and(|due| due <= now) {
                self.host.on_timer(now);
                is_silent = false;
            }
            while self.host.tcp_next_woken().is_some() {}
            while let Some(frame) = self.host.next_frame() {
                frames.push(frame);
                is_silent = false;
            }
            if is_silent {
                return frames;
            }
        }
        panic!("softclock does not come to rest");
    }

    fn next_timeout(&mut self, _now: Instant) -> Option<Instant> {
        self.host.next_timeout()
    }

    fn accept(&mut self, now: Instant) {
        for (connection, listener) in self.listeners.iter().enumerate() {
            if let Some((id, _)) = self.host.tcp_accept(now, *listener) {
                assert!(self.ids[connection].is_none(), "accepted twice");
                self.ids[connection] = Some(id);
            }
        }
    }

    fn is_open(&self, connection: usize) -> bool {
        self.ids[connection].is_some()
    }

    fn read(&mut self, now: Instant, connection: usize, into: &mut [u8]) -> Read {
        match self.host.tcp_read(now, self.id(connection), into) {
            Ok(0) => Read::End,
            Ok(read) => Read::Bytes(read),
            Err(TcpError::WouldBlock) => Read::Nothing,
            Err(error) => failed(error),
        }
    }

    fn write(&mut self, now: Instant, connection: usize, bytes: &[u8]) -> Option<usize> {
        let bytes = Bytes::copy_from_slice(bytes);
        match self.host.tcp_write(now, self.id(connection), bytes) {
            Ok(written) => Some(written),
            Err(TcpError::WouldBlock) => Some(0),
            Err(error) => {
                failed(error);
                None
            }
        }
    }

    fn shut(&mut self, now: Instant, connection: usize) -> bool {
        let id = self.id(connection);
        self.host.tcp_shutdown_write(now, id).is_ok()
    }

    fn leave(&mut self, now: Instant, connection: usize) {
        let id = self.id(connection);
        self.host.tcp_close(now, id);
    }

    fn abort(&mut self, now: Instant, connection: usize) {
        let id = self.id(connection);
        self.host.tcp_abort(now, id);
    }

    fn left(&self) -> Option<String> {
        let is_closed = |state| self.is_hasty && state == State::TimeWait;
        let states = self.host.tcp_states();
        let states: Vec<_> = states
            .filter(|&(state, count)| count > 0 && !is_closed(state))
            .collect();
        let memory = self.host.tcp_memory();
        let timer = self.host.next_timeout().filter(|_| !self.is_hasty);
        let is_empty = states.is_empty() && memory == 0 && timer.is_none();
        (!is_empty).then(|| format!("softclock: {states:?}, {memory} bytes, timer {timer:?}"))
    }
}

/// Only a reset may end a connection: the path is not so bad that an end could give up.
fn failed(error: TcpError) -> Read {
    let is_reset = matches!(
        error,
        TcpError::Closed | TcpError::Failed(Error::Reset | Error::Refused)
    );
    assert!(is_reset, "{error:?}");
    Read::Reset
}

/// The least length of packets that links of IPv6 must carry (RFC 8200, 5).
const LEAST_MTU_V6: usize = 1280;
