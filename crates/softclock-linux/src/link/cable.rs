//! Two links of a test's own, and frames for them.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use softclock_wire::packet::{Offload, PartialChecksum, SegmentKind, Segmentation};

use super::Link;

/// Two links joined by a cable, or why there can be none here.
pub(super) struct Cable(String);

/// A cable of the test's own, which is skipped where there can be none.
macro_rules! cable {
    () => {{
        softclock_testing::require!("ip");
        match crate::link::cable::Cable::new() {
            Ok(cable) => cable,
            Err(reason) => softclock_testing::skip!("{reason}"),
        }
    }};
}
pub(super) use cable;

impl Cable {
    pub(super) fn new() -> Result<Self, String> {
        Self::with_queues(1)
    }

    /// Ends with so many queues in each direction.
    pub(super) fn with_queues(queues: u32) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("needs root for links of its own".into());
        }
        // Tests run at the same time, and a name has 15 bytes.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cable = Self(format!("sc{}c{number}", std::process::id()));
        let [a, b] = cable.ends();
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let pair = format!("link add name {a} {queues} type veth peer name {b} {queues}");
        match ip(&pair) && ip(&format!("link set {a} up")) && ip(&format!("link set {b} up")) {
            true => Ok(cable),
            false => Err("links cannot be made here".into()),
        }
    }

    fn ends(&self) -> [String; 2] {
        ["a", "b"].map(|end| format!("{}{end}", self.0))
    }

    pub(super) fn links(&self) -> [Link; 2] {
        self.ends().map(|name| Link::named(&name).unwrap())
    }

    /// What `ip` tells of the ends.
    pub(super) fn state(&self) -> [String; 2] {
        self.ends().map(|name| {
            let words = ["-details", "link", "show", &name];
            let output = Command::new("ip").args(words).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        })
    }

    /// `ip link set` for one end.
    pub(super) fn set(&self, end: usize, words: &str) {
        assert!(ip(&format!("link set {} {words}", self.ends()[end])));
    }

    /// Gives the first end another name, by which nothing here knows it, and leaves it up or down.
    pub(super) fn rename_first(&self, name: &str, state: &str) {
        self.set(0, "down");
        self.set(0, &format!("name {name}"));
        assert!(ip(&format!("link set {name} {state}")));
    }
}

impl Drop for Cable {
    /// By the end that keeps its name.
    fn drop(&mut self) {
        ip(&format!("link delete {}", self.ends()[1]));
    }
}

fn ip(words: &str) -> bool {
    let status = Command::new("ip").args(words.split(' ')).status();
    status.is_ok_and(|status| status.success())
}

/// A frame of so many bytes.
pub(super) fn frame(tag: &[u8], bytes: usize) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &SENDER, tag, &[0x08, 0x00]].concat();
    // IPv4 and TCP, as far as a kernel looks at them.
    let length = (bytes - 14 - tag.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 1]);
    frame.resize(bytes, 7);
    frame
}

/// What is left to do with such a frame, without a tag, whose segments are to have so many bytes.
pub(super) fn joined(segment_bytes: u16) -> Offload {
    Offload {
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 16,
        }),
        segmentation: Some(Segmentation {
            kind: SegmentKind::Tcp4,
            has_ecn: false,
            header_bytes: 54,
            segment_bytes,
        }),
    }
}

/// Who sends these frames: the host sends some, too.
pub(super) const SENDER: [u8; 6] = [2, 0, 0, 0, 0x5c, 1];
