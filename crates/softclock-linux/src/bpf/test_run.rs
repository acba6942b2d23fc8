//! Runs a program on a frame, for tests (BPF_PROG_TEST_RUN).

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use super::Program;

impl Program {
    /// Runs an XDP program on a frame this number of times, and does not carry its action out; returns the last action
    /// and the mean time of a run in nanoseconds.
    pub(crate) fn run(&self, frame: &[u8], times: u32) -> io::Result<(u32, u32)> {
        let mut request = self.request(frame, times);
        run(&mut request)?;
        Ok((request.action, request.duration))
    }

    /// Runs an XDP program on this number of frames of the first queue of a link, and carries its actions out.
    pub(crate) fn run_live(&self, link_index: u32, frame: &[u8], times: u32) -> io::Result<()> {
        let context = Context {
            end: frame.len() as u32,
            link_index,
            ..Context::default()
        };
        let mut request = Request {
            context_bytes: size_of::<Context>() as u32,
            context: (&raw const context).expose_provenance() as u64,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            ..self.request(frame, times)
        };
        run(&mut request)
    }

    fn request(&self, frame: &[u8], times: u32) -> Request {
        Request {
            program: self.0.as_raw_fd() as u32,
            frame_bytes: frame.len() as u32,
            frame: frame.as_ptr().expose_provenance() as u64,
            times,
            ..Request::default()
        }
    }
}

/// Makes a request whose pointers are valid during this call.
fn run(request: &mut Request) -> io::Result<()> {
    let request: *mut Request = request;
    loop {
        // SAFETY: the structure has the layout of this command, which reads its pointers and writes its results to it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_PROG_TEST_RUN,
                request,
                size_of::<Request>(),
            )
        };
        let error = io::Error::last_os_error();
        match (result, error.kind()) {
            (0, _) => return Ok(()),
            // A signal has interrupted the run, such as one for the alarm of another test. It has written no results.
            (_, io::ErrorKind::Interrupted) => {}
            _ => return Err(error),
        }
    }
}

/// The beginning of `union bpf_attr` for BPF_PROG_TEST_RUN.
#[derive(Default)]
#[repr(C)]
struct Request {
    program: u32,
    action: u32,
    frame_bytes: u32,
    output_bytes: u32,
    frame: u64,
    output: u64,
    times: u32,
    duration: u32,
    context_bytes: u32,
    context_output_bytes: u32,
    context: u64,
    context_output: u64,
    flags: u32,
    processor: u32,
    batch: u32,
    padding: u32,
}

const _: () = assert!(size_of::<Request>() == 80);

/// `struct xdp_md`.
#[derive(Default)]
#[repr(C)]
struct Context {
    start: u32,
    end: u32,
    metadata: u32,
    link_index: u32,
    queue: u32,
    egress: u32,
}

const BPF_PROG_TEST_RUN: libc::c_int = 10;
/// include/uapi/linux/bpf.h.
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
