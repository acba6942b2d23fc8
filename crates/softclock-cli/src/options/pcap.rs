//! The options that capture the frames of a network stack.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use softclock::net::stack::{CaptureEnd, CaptureOptions, Stack};

use super::content::size;
use crate::logging;
use crate::values::whole;

/// Options of each command that may have a network stack of its own.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PcapOptions {
    /// Write the frames that the stack receives and sends to this file (pcapng), for Wireshark; it must not exist
    #[arg(long, value_name = "FILE", requires = "dev")]
    pcap: Option<PathBuf>,

    /// Most bytes of each frame in the file (1 to 262144) [default: all]
    #[arg(long, value_name = "BYTES", value_parser = whole(1..=MOST_SNAPLEN), requires = "pcap")]
    pcap_snaplen: Option<u32>,

    /// Most bytes of the file, at least 4K; then the capture ends, and the command goes on
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = limit, requires = "pcap")]
    pcap_limit: u64,
}

impl PcapOptions {
    /// The settings of the capture. `None` if there is to be none.
    pub(crate) fn settings(&self) -> Option<CaptureOptions> {
        let mut settings = CaptureOptions::new(self.pcap.as_ref()?);
        settings.limit_bytes = self.pcap_limit;
        if let Some(snaplen) = self.pcap_snaplen {
            settings.snap_bytes = snaplen;
        }
        Some(settings)
    }
}

/// The capture of an open stack, for the user: says once if it ends early.
pub(crate) struct Pcap {
    stack: Stack,
    path: PathBuf,
    has_said: Cell<bool>,
}

impl Pcap {
    /// Watches the capture of a stack that was opened with these options, in a task of the current runtime.
    pub(crate) fn watch(stack: &Stack, options: &PcapOptions) -> Option<Rc<Self>> {
        let pcap = Rc::new(Self {
            stack: stack.clone(),
            path: options.pcap.clone()?,
            has_said: Cell::new(false),
        });
        let watched = pcap.clone();
        drop(softclock::spawn_local(async move {
            let end = watched.stack.capture_ended().await;
            watched.say(&end);
        }));
        Some(pcap)
    }

    /// Ends the capture, and waits until its file is written.
    pub(crate) fn finish(&self) {
        self.stack.finish_capture();
        let end = self.stack.report().capture.and_then(|capture| capture.end);
        if let Some(end) = end {
            self.say(&end);
        }
    }

    fn say(&self, end: &CaptureEnd) {
        if !self.has_said.replace(true) {
            let path = self.path.display();
            logging::note(&format!(
                "--pcap {path}: {end}; the capture ends, the command goes on"
            ));
        }
    }
}

/// Words an error of creating the file for the user.
pub(crate) fn not_captured(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("--pcap {path}: the file exists; remove it, or name another")
        }
        _ => format!("--pcap {path}: {error}"),
    }
}

/// Parses the limit of the file.
fn limit(text: &str) -> Result<u64, String> {
    match size(text) {
        Ok(bytes @ LEAST_LIMIT..) => Ok(bytes as u64),
        Ok(_) => Err("not a size of 4K or more".into()),
        Err(error) => Err(error),
    }
}

/// The longest frames that readers of captures take.
const MOST_SNAPLEN: u32 = 262_144;

/// Less would hold no frame.
const LEAST_LIMIT: usize = 4096;
