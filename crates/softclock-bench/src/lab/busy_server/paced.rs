//! What lets the pieces of a busy server's responses go, switched on and off.
//!
//! All connections of the server have one pacer, so that a change of it reaches them while they are in use.

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

/// As [`run`](super::run), where all connections have the pacer that `control` is given.
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
        // Clients that are gone already tell why themselves.
        let _ = listening.send(address);
        softclock::sleep(workload.warm_up).await;
        let result = control(pacer).await;
        // The clients first, who would complain of closed connections.
        stop.store(true, Ordering::Relaxed);
        result
    })
}

async fn accept(listener: TcpListener, pacer: Pacer, site: Rc<Site>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (stream, site) = (stream.paced(&pacer), Rc::clone(&site));
        softclock::spawn_local(async move {
            // Connections end when the clients do.
            let _ = serve_connection(stream, site, &ConnectionOptions::default()).await;
        });
    }
}

/// The bytes of a piece: a segment of Ethernet.
pub const PIECE_BYTES: usize = 1448;

/// Pacing in one way, against something else.
pub struct Paced {
    pacer: Pacer,
    means: Means,
    base: Base,
    running: Option<Running>,
    /// As it began.
    before: PacingStatistics,
    /// How long the pieces were.
    mean_bytes: usize,
}

/// What pacing is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// Whole responses.
    Whole,
    /// Pieces of a segment that are sent without waiting.
    Segments,
    /// Pieces that are sent without waiting, as long as those of the last slice were on average.
    SamePieces,
}

/// What lets a piece go.
#[derive(Clone, Copy, Debug)]
pub enum Means {
    /// Nothing is waited for: the pieces alone.
    AtOnce,
    /// A soft event at each trigger state, for one piece of one connection.
    EachTrigger,
    /// A soft event a piece and connection, at a rate.
    Rate(Pacing),
    /// A signal of a POSIX timer with this period, for a piece of each connection; they go at the end of the call that
    /// the signal interrupted.
    Signal(Duration),
    /// A timer descriptor with this period, for a piece of each connection, read by a task.
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
    /// Pieces let go by `means`, compared with `base`.
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

/// Pieces without a wait: at a rate beyond all that soft events can clock.
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
                let mut seen = SIGNALS.fires();
                let event = each_trigger(move || {
                    let fires = SIGNALS.fires();
                    if fires != seen {
                        seen = fires;
                        pacer.release(usize::MAX);
                    }
                });
                // Frequent signals leave the thread no time to notice that the slice is over.
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
