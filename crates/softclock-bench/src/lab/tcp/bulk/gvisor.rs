//! gVisor's netstack, as a process of a Go program.

use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use softclock_linux::child::end_with_parent;
use softclock_testing::KilledOnDrop;
use softclock_testing::lab::Namespace;

use super::plan::{LINK_ADDRESS, Plan, RECEIVE_PORT, SEND_PORT, SUBJECT, TAP};
use crate::peers::program::{Module, Workshop};

/// The compiled program.
#[derive(Debug)]
pub struct Gvisor {
    program: PathBuf,
    _workshop: Workshop,
}

impl Gvisor {
    /// Compiles the program.
    ///
    /// # Errors
    /// The reason why it is left out, as a sentence for a report's notes.
    pub fn compile() -> Result<Self, String> {
        let workshop = Workshop::new().map_err(|error| error.to_string())?;
        let program = workshop.go_module(SOURCE, MODULE)?.program;
        Ok(Self {
            program,
            _workshop: workshop,
        })
    }

    /// Starts it in a namespace, on a TAP device that it creates, and waits until it listens.
    pub(super) fn start(&self, namespace: &Namespace, plan: Plan) -> io::Result<KilledOnDrop> {
        let mut command = namespace.command(&self.program.to_string_lossy());
        let hexadecimal = LINK_ADDRESS.map(|byte| format!("{byte:02x}")).join(":");
        command.args([TAP, &hexadecimal, &SUBJECT.to_string()]);
        command.args([SEND_PORT, RECEIVE_PORT].map(|port| port.to_string()));
        command.arg(plan.bytes.to_string());
        command.arg(plan.buffers.bytes().unwrap_or(0).to_string());
        command.env("GOMAXPROCS", "1");
        end_with_parent(&mut command)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = KilledOnDrop::new(command.spawn()?);
        let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        match BufReader::new(output).lines().next() {
            Some(Ok(_)) => Ok(process),
            _ => Err(io::Error::other("gVisor's program has ended")),
        }
    }
}

const SOURCE: (&str, &str) = (
    "bulk_gvisor.go",
    include_str!("../../../../peers/bulk_gvisor.go"),
);

/// A version of the branch `go`, which the go command can build.
const MODULE: Module = Module {
    path: "gvisor.dev/gvisor",
    version: "v0.0.0-20250205023644-9414b50a5633",
};
