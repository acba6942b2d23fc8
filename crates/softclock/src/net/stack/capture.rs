//! Captures of the frames of a stack: a pcapng file that Wireshark and tcpdump read.
//!
//! The stack's thread encodes each frame into a bounded buffer ([`Capture`]), and a thread of its own writes the buffer
//! to the file ([`writer`]). So the stack never waits for a disk, and an error of the disk only ends the capture.
//! Frames that find the buffer full are not captured, and counted in the next frame's block.

mod writer;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use softclock_core::Instant;
use softclock_net::drops::{DropReason, Drops};
use softclock_wire::capture::{Encoder, Heading, LinkType, MOST_SNAP_BYTES, Record};

use writer::Buffered;

/// The settings of a capture.
///
/// # Example
/// ```no_run
/// use softclock::net::stack::{self, CaptureOptions, StackOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// softclock::Runtime::new()?.block_on(async {
///     let mut options = StackOptions::new("eth0");
///     options.addresses.push("192.0.2.7/24".parse()?);
///     options.capture = Some(CaptureOptions::new("eth0.pcapng"));
///     let stack = stack::open(&options)?;
///     softclock::sleep(std::time::Duration::from_secs(10)).await;
///
///     stack.finish_capture();
///     let capture = stack.report().capture.ok_or("there is one")?;
///     println!("{} frames, {} missed", capture.frames, capture.missed);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CaptureOptions {
    /// The file to create. Only its owner may read it (mode 0600), since frames have the data of others. An existing
    /// file is refused.
    pub path: PathBuf,
    /// The most bytes of each frame that are captured: 262144 by default, which is more than any frame has, so that
    /// frames are whole.
    pub snap_bytes: u32,
    /// The most bytes of the file: 1 GiB by default. The capture ends when the next frame would exceed it.
    pub limit_bytes: u64,
    /// The most bytes that wait for the disk: 16 MiB by default, which is an eighth of a second of 1 Gbit/s. Frames
    /// beyond are not captured. The memory is at most twice this, as much is being written; it grows only as needed.
    pub buffer_bytes: usize,
}

impl CaptureOptions {
    /// The defaults, for this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            snap_bytes: MOST_SNAP_BYTES,
            limit_bytes: 1 << 30,
            buffer_bytes: 16 << 20,
        }
    }
}

/// The state of a capture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureReport {
    /// Frames that were captured, written or not.
    pub frames: u64,
    /// The bytes of the file, written or not.
    pub bytes: u64,
    /// Frames that were not captured since the disk was behind.
    pub missed: u64,
    /// Why the capture has ended early. `None` while it runs, and after
    /// [`finish_capture`](super::Stack::finish_capture).
    pub end: Option<CaptureEnd>,
}

/// Why a capture has ended, while the stack goes on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CaptureEnd {
    /// The file has as many bytes as [`CaptureOptions::limit_bytes`] allows.
    Limit,
    /// The file cannot be written, such as when the disk is full. It is cut after the last frame that is whole.
    Failed(Arc<io::Error>),
}

impl fmt::Display for CaptureEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit => f.write_str("the file has reached its limit"),
            Self::Failed(error) => write!(f, "the file cannot be written: {error}"),
        }
    }
}

/// A running capture. Dropping it writes what is buffered.
pub(super) struct Capture {
    encoder: Encoder,
    /// The Unix time of the origin of the runtime's clock.
    origin: Duration,
    buffered: Arc<Buffered>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A copy of a frame that the stack is about to handle.
pub(super) struct Copied {
    arrived: Instant,
    original_bytes: usize,
    data: Vec<u8>,
}

impl Capture {
    /// Creates the file, and starts the thread that writes it. `now` is the time of the runtime's clock.
    pub(super) fn start(
        options: &CaptureOptions,
        interface: &str,
        now: Instant,
    ) -> io::Result<Self> {
        let mut file = create(options)?;
        let mut block = Vec::new();
        let snap_bytes = options.snap_bytes;
        let encoder = Encoder::begin(&mut block, interface, LinkType::ETHERNET, snap_bytes);
        file.write_all(&block)?;
        let buffered = Buffered::new(options.limit_bytes, options.buffer_bytes, block.len());
        let buffered = Arc::new(buffered);
        let shared = buffered.clone();
        let start = block.len() as u64;
        let writer = thread::Builder::new()
            .name("softclock-pcap".into())
            .spawn(move || shared.write_to(&mut file, start))?;
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let since_origin = now.since(Instant::ORIGIN);
        Ok(Self {
            encoder,
            // A machine whose clock is not set has times from the origin on.
            origin: unix.unwrap_or_default().saturating_sub(since_origin),
            buffered,
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Copies a frame before the stack handles it, as far as it is captured.
    pub(super) fn copy(&self, arrived: Instant, frame: &[u8]) -> Copied {
        let captured = frame.len().min(self.encoder.snap_bytes() as usize);
        Copied {
            arrived,
            original_bytes: frame.len(),
            data: frame[..captured].to_vec(),
        }
    }

    /// Records a frame that the stack has received and handled. `before` and `after` are the stack's counts of drops
    /// around this: the reason that was counted becomes the frame's comment.
    pub(super) fn on_received(&self, copied: &Copied, before: &Drops, after: &Drops) {
        let counted = |reason: &DropReason| after.of(*reason) > before.of(*reason);
        let reason = DropReason::ALL.into_iter().find(counted);
        let comment = reason.map(|reason| format!("dropped: {reason}"));
        let heading = Heading::Inbound;
        let Copied {
            arrived,
            original_bytes,
            ref data,
        } = *copied;
        self.record(arrived, heading, original_bytes, data, comment.as_deref());
    }

    /// Records a frame that the stack sends.
    pub(super) fn on_sent(&self, now: Instant, frame: &[u8]) {
        self.record(now, Heading::Outbound, frame.len(), frame, None);
    }

    fn record(
        &self,
        at: Instant,
        heading: Heading,
        original_bytes: usize,
        data: &[u8],
        comment: Option<&str>,
    ) {
        self.buffered.push(|missed, blocks| {
            let record = Record {
                at: at + self.origin,
                heading,
                original_bytes: u32::try_from(original_bytes).unwrap_or(u32::MAX),
                data,
                missed,
                comment,
            };
            self.encoder.packet(blocks, &record);
        });
    }

    /// Whether frames are still captured.
    pub(super) fn is_running(&self) -> bool {
        !self.buffered.is_over()
    }

    /// Ends the capture, and waits until all of it is written.
    pub(super) fn finish(&self) {
        self.buffered.close();
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writer.take() {
            // A panic of the thread has been printed, and there is nothing to undo.
            let _ = writer.join();
        }
    }

    pub(super) fn report(&self) -> CaptureReport {
        self.buffered.report()
    }

    /// Ready when the capture has ended early, and the file is written.
    pub(super) fn poll_ended(&self, cx: &Context<'_>) -> Poll<CaptureEnd> {
        self.buffered.poll_ended(cx)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.finish();
    }
}

fn create(options: &CaptureOptions) -> io::Result<File> {
    let mut create = OpenOptions::new();
    create.write(true).create_new(true).mode(0o600);
    create.open(&options.path)
}

#[cfg(test)]
mod tests;
