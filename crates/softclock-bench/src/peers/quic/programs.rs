//! The senders in programs of their own: quic-go and s2n-quic.

use std::path::{Path, PathBuf};

use crate::peers::program::{Module, Project, Workshop};

use super::Sender;

/// A compiled sender. Its program is removed when this is dropped.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    /// The version of the library.
    pub version: String,
    _workshop: Workshop,
}

impl Program {
    /// Compiles the program of a sender that has one.
    ///
    /// # Errors
    /// The reason why it is left out, as a sentence for a report's notes.
    pub fn compile(sender: Sender) -> Result<Self, String> {
        let workshop = Workshop::new().map_err(|error| error.to_string())?;
        let compiled = match sender {
            Sender::Quinn(..) => return Err(format!("{} has no program", sender.name())),
            Sender::QuicGo => workshop.go_module(QUIC_GO, QUIC_GO_MODULE)?,
            Sender::S2nQuic => workshop.cargo_project(&S2N_QUIC)?,
        };
        Ok(Self {
            path: compiled.program,
            version: compiled.version,
            _workshop: workshop,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

const QUIC_GO: (&str, &str) = ("bulk_quic.go", include_str!("../../../peers/bulk_quic.go"));

const QUIC_GO_MODULE: Module = Module {
    path: "github.com/quic-go/quic-go",
    version: "v0.59.0",
};

const S2N_QUIC: Project = Project {
    name: "bulk_s2n_quic",
    library: "s2n-quic",
    manifest: include_str!("../../../peers/bulk_s2n_quic/Cargo.toml"),
    lock: include_str!("../../../peers/bulk_s2n_quic/Cargo.lock"),
    main: include_str!("../../../peers/bulk_s2n_quic/src/main.rs"),
};
