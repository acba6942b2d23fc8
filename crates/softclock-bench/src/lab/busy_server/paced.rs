//! Toggles for the pacing of a busy server's responses.
//!
//! All connections of the server share one pacer, so a change of it affects them while they are in use.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use softclock::alarm::AlarmCounter;
use softclock::net::{PacedBy, Pacer, Pacing, PacingStatistics, TcpListener};
use softclock::{EventContext, JoinHandle, Rate, Runtime, SoftEvent};
use softclock_http::{ConnectionOptions, Site, serve_connection};
use softclock_linux::alarm::SignalTimer;

use super::timerfd::{Again, read_timer};
use super::toggles::Toggle;
use super::{FILE, FILE_BYTES, Workload, run_server};

/// Like [`run`](super::run), with a server whose connections all use the pacer that is passed to `control`.
///
/// # Errors
/// As [`run`](super::run).
pub fn run<R, F>(workload: &Workload, control: impl FnOnce(Pacer) -> F + Send) -> io::Result<R>
where
    F: Future<Output = io::Result<R>>,
    R: Send,
{
    run_server(workload, |listening, stop| {
        serve(workload, listening, stop, control)
    })
}

fn serve<R, F: Future<Output = io::Result<R>>>(
    workload: &Workload,
    listening: Sender<SocketAddr>,
    stop: &AtomicBool,
    control: impl FnOnce(Pacer) -> F,
) -> io::Result<R> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join(FILE), vec![b'x'; FILE_BYTES])?;
    let site = Site::directory(directory.path()).map_err(io::Error::other)?;
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let pacer = Pacer::default();
        softclock::spawn_local(accept(listener, pacer.clone(), Rc::new(site)));
        // If the clients have ended already, they report the reason themselves.
        let _ = listening.send(address);
        softclock::sleep(workload.warm_up).await;
        let result = control(pacer).await;
        // Stop the clients first: they treat a connection that the server closes as an error.
        stop.store(true, Ordering::Relaxed);
        result
    })
}

async fn accept(listener: TcpListener, pacer: Pacer, site: Rc<Site>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (stream, site) = (stream.paced(&pacer), Rc::clone(&site));
        softclock::spawn_local(async move {
            // Connections fail when the clients end.
            let _ = serve_connection(stream, site, &ConnectionOptions::default()).await;
        });
    }
}

/// The bytes of a piece: an Ethernet segment.
pub const PIECE_BYTES: usize = 1448;

/// Toggles a way of pacing against a base.
pub struct Paced {
    pacer: Pacer,
    means: Means,
    base: Base,
    running: Option<Running>,
    /// The statistics at the start of the slice.
    before: PacingStatistics,
    /// The mean length of the pieces in the last slice.
    mean_bytes: usize,
}

/// The base that pacing is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// Whole responses.
    Whole,
    /// Pieces of one segment, sent at once.
    Segments,
    /// Pieces sent at once, of the mean length of those in the last slice.
    SamePieces,
}

/// The event that releases a piece.
#[derive(Clone, Copy, Debug)]
pub enum Means {
    /// None: the pieces are sent at once.
    AtOnce,
    /// A soft event at each trigger state, which releases one piece of one connection.
    EachTrigger,
    /// A soft event per piece and connection, at a rate.
    Rate(Pacing),
    /// The signal of a POSIX timer with this period, which releases a piece of each connection at the end of the system
    /// call that it interrupted.
    Signal(Duration),
    /// A timer descriptor with this period, read by a task, which releases a piece of each connection.
    Timerfd(Duration),
}

enum Running {
    Event(SoftEvent),
    Signal(
        SoftEvent,
        #[expect(dead_code, reason = "stops when dropped")] SignalTimer,
    ),
    Task(JoinHandle<io::Result<()>>),
}

impl Paced {
    /// Creates a toggle of `means` against `base`.
    pub fn new(pacer: &Pacer, means: Means, base: Base) -> Self {
        Self {
            pacer: pacer.clone(),
            means,
            base,
            running: None,
            before: PacingStatistics::default(),
            mean_bytes: PIECE_BYTES,
        }
    }
}

/// Returns a pacing without waits: its rate is beyond all that soft events can clock.
fn at_once(piece_bytes: usize) -> Pacing {
    Pacing {
        piece_bytes: Some(piece_bytes),
        ..Pacing::of_rate(Rate::from_bps(u64::MAX).expect("more than zero"))
    }
}

fn released() -> Pacing {
    Pacing {
        by: PacedBy::Release,
        ..at_once(PIECE_BYTES)
    }
}

impl Toggle for Paced {
    fn start(&mut self, slice: Duration) -> io::Result<()> {
        let pacing = match self.means {
            Means::AtOnce => at_once(PIECE_BYTES),
            Means::Rate(pacing) => pacing,
            _ => released(),
        };
        self.pacer.set(Some(pacing));
        self.before = softclock::statistics().pacing;
        let pacer = self.pacer.clone();
        self.running = match self.means {
            Means::AtOnce | Means::Rate(_) => None,
            Means::EachTrigger => Some(Running::Event(each_trigger(move || {
                pacer.release(1);
            }))),
            Means::Signal(period) => {
                // A signal handler may not use the pacer: it counts, and the next trigger state releases the pieces.
                let mut seen = SIGNALS.fires();
                let event = each_trigger(move || {
                    let fires = SIGNALS.fires();
                    if fires != seen {
                        seen = fires;
                        pacer.release(usize::MAX);
                    }
                });
                // Frequent signals can keep the thread from reaching the end of the slice, so the timer stops by
                // itself.
                let until = softclock::now() + slice * 2;
                let timer = SignalTimer::start_until(&SIGNALS, period, until)?;
                Some(Running::Signal(event, timer))
            }
            Means::Timerfd(period) => {
                let release = move || {
                    pacer.release(usize::MAX);
                };
                Some(Running::Task(read_timer(Again::Each(period), release)?))
            }
        };
        Ok(())
    }

    fn stop(&mut self) -> io::Result<u64> {
        match self.running.take() {
            Some(Running::Event(event) | Running::Signal(event, _)) => {
                event.cancel();
            }
            Some(Running::Task(task)) => task.abort(),
            None => {}
        }
        let after = softclock::statistics().pacing;
        let pieces = after.pieces - self.before.pieces;
        let bytes = after.bytes - self.before.bytes;
        if let Some(mean) = bytes.checked_div(pieces) {
            self.mean_bytes = mean as usize;
        }
        self.pacer.set(None);
        Ok(pieces)
    }

    fn before_off(&mut self) {
        self.pacer.set(match self.base {
            Base::Whole => None,
            Base::Segments => Some(at_once(PIECE_BYTES)),
            Base::SamePieces => Some(at_once(self.mean_bytes)),
        });
    }

    fn after_off(&mut self) {
        self.pacer.set(None);
    }
}

/// Calls `f` at each trigger state.
fn each_trigger(mut f: impl FnMut() + 'static) -> SoftEvent {
    softclock::schedule_soft_event(0, move |event: &mut EventContext<'_>| {
        f();
        event.reschedule(0);
    })
}

static SIGNALS: AlarmCounter = AlarmCounter::new();
