//! Sends ten audio tracks over WebRTC by str0m, the frames of the tracks evenly spaced, and prints how even their
//! arrivals are.
//!
//! str0m makes no system call and reads no clock: its calls take the time and received datagrams, and return datagrams
//! to send and the time of its next timer. A soft timer ends the wait for either that time or the next frame, whichever
//! is first.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use softclock::net::UdpSocket;
use softclock::time::{from_std, to_std};
use softclock::{Runtime, sleep_until};
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};

const TRACKS: u32 = 10;
const FRAMES: u32 = 100;
/// The time between two frames of a track.
const PERIOD: Duration = Duration::from_millis(20);
const FRAME: [u8; 160] = [0; 160];
/// No frame for so long ends the receiver.
const QUIET: Duration = Duration::from_secs(1);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    str0m::crypto::from_feature_flags().install_process_default();
    let [mut here, mut there] = [Peer::new()?, Peer::new()?];
    let tracks = negotiate(&mut here.rtc, &mut there.rtc)?;
    let receiver = thread::spawn(move || Runtime::new()?.block_on(there.receive()));
    let late = Runtime::new()?.block_on(here.send(&tracks))?;
    let arrivals = receiver.join().expect("the receiver does not panic")?;

    if arrivals.len() < (TRACKS * FRAMES / 2) as usize {
        return Err(format!("only {} frames have arrived", arrivals.len()).into());
    }
    let mut gaps: Vec<_> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    let gap = |share: f64| gaps[((gaps.len() - 1) as f64 * share) as usize];
    println!("{} of {} frames arrived", arrivals.len(), TRACKS * FRAMES);
    println!("written {late:?} late at p50");
    println!(
        "gaps: {:?} between evenly spaced frames; here p10 {:?}, p50 {:?}, p90 {:?}",
        PERIOD / TRACKS,
        gap(0.1),
        gap(0.5),
        gap(0.9)
    );
    Ok(())
}

/// One end of a connection.
struct Peer {
    rtc: Rtc,
    socket: std::net::UdpSocket,
    address: SocketAddr,
}

/// The end of a wait.
enum Woken {
    Received(usize, SocketAddr),
    Due,
}

impl Peer {
    fn new() -> Result<Self> {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = socket.local_addr()?;
        let mut rtc = Rtc::new(Instant::now());
        rtc.add_local_candidate(Candidate::host(address, "udp")?);
        Ok(Self {
            rtc,
            socket,
            address,
        })
    }

    /// Sends a frame of each track in turn from the time on at which the peers are connected. Returns the median
    /// lateness of the frames.
    async fn send(mut self, tracks: &[Mid]) -> Result<Duration> {
        let socket = UdpSocket::from_std(self.socket.try_clone()?)?;
        let mut buffer = [0; 2000];
        let mut is_connected = false;
        let mut frame_due = softclock::now();
        let connected_by = softclock::now() + 10 * QUIET;
        let mut late = Vec::new();
        loop {
            if !is_connected && softclock::now() >= connected_by {
                return Err("the peers do not connect".into());
            }
            let timer = self.drain(&socket, |event| {
                if matches!(event, Event::Connected) {
                    is_connected = true;
                    // The other side may not be ready to decrypt yet.
                    frame_due = softclock::now() + PERIOD;
                }
            })?;
            let due = if is_connected {
                timer.min(frame_due)
            } else {
                timer
            };
            let woken = wait(&socket, &mut buffer, due).await?;
            let now = softclock::now();
            if matches!(woken, Woken::Due) && is_connected && frame_due <= now {
                late.push(now.since(frame_due));
                let number = late.len() as u32 - 1;
                self.write(tracks[(number % TRACKS) as usize], number / TRACKS)?;
                frame_due += PERIOD / TRACKS;
            } else {
                self.take(woken, &buffer)?;
            }
            if late.len() == (TRACKS * FRAMES) as usize {
                self.drain(&socket, |_| {})?;
                late.sort_unstable();
                return Ok(late[late.len() / 2]);
            }
        }
    }

    /// Returns the times at which frames arrived, when none has come for a while.
    async fn receive(mut self) -> Result<Vec<Instant>> {
        let socket = UdpSocket::from_std(self.socket.try_clone()?)?;
        let mut buffer = [0; 2000];
        let mut arrivals = Vec::new();
        let mut quiet = softclock::now() + 10 * QUIET;
        loop {
            let timer = self.drain(&socket, |event| {
                if let Event::MediaData(data) = event {
                    arrivals.push(data.network_time);
                    quiet = softclock::now() + QUIET;
                }
            })?;
            if softclock::now() >= quiet {
                return Ok(arrivals);
            }
            let woken = wait(&socket, &mut buffer, timer.min(quiet)).await?;
            self.take(woken, &buffer)?;
        }
    }

    /// Sends the datagrams that are ready, and passes on the events. Returns the time of the next timer.
    fn drain(
        &mut self,
        socket: &UdpSocket,
        mut on_event: impl FnMut(Event),
    ) -> Result<softclock::Instant> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(timer) => return Ok(from_std(timer)),
                // A datagram for which there is no room is lost, as on the network.
                Output::Transmit(datagram) => {
                    let _ = socket.try_send_to(&datagram.contents, datagram.destination);
                }
                Output::Event(event) => on_event(event),
            }
        }
    }

    fn take(&mut self, woken: Woken, buffer: &[u8]) -> Result<()> {
        let now = to_std(softclock::now());
        let input = match woken {
            Woken::Due => Input::Timeout(now),
            Woken::Received(length, source) => {
                let datagram = &buffer[..length];
                let receive = Receive::new(Protocol::Udp, source, self.address, datagram)?;
                Input::Receive(now, receive)
            }
        };
        Ok(self.rtc.handle_input(input)?)
    }

    fn write(&mut self, track: Mid, frame: u32) -> Result<()> {
        let writer = self.rtc.writer(track).ok_or("the track is not open")?;
        let params = writer.payload_params().next();
        let pt = params.ok_or("no codec is negotiated")?.pt();
        let samples = u64::from(frame) * PERIOD.as_millis() as u64 * 48;
        let time = MediaTime::new(samples, Frequency::FORTY_EIGHT_KHZ);
        Ok(writer.write(pt, to_std(softclock::now()), time, FRAME)?)
    }
}

/// Offers the tracks and answers, both in this process: how these reach the other side is up to the application.
fn negotiate(here: &mut Rtc, there: &mut Rtc) -> Result<Vec<Mid>> {
    let mut offer = here.sdp_api();
    let audio = |_| offer.add_media(MediaKind::Audio, Direction::SendOnly, None, None, None);
    let tracks = (0..TRACKS).map(audio).collect();
    let (offer, pending) = offer.apply().ok_or("nothing to offer")?;
    let answer = there.sdp_api().accept_offer(offer)?;
    here.sdp_api().accept_answer(pending, answer)?;
    Ok(tracks)
}

/// Waits for a datagram, until `due`.
async fn wait(socket: &UdpSocket, buffer: &mut [u8], due: softclock::Instant) -> io::Result<Woken> {
    let received = async {
        let (length, source) = socket.recv_from(buffer).await?;
        Ok(Woken::Received(length, source))
    };
    let timer = async {
        sleep_until(due).await;
        Ok(Woken::Due)
    };
    or(received, timer).await
}
