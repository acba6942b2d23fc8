//! Bulk transfers by QUIC: the senders to compare, and one receiver for all.

mod programs;
mod receiver;
mod sender;
mod settings;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use softclock_core::Rate;

use super::runtimes::word;
use crate::servers::Certificate;

pub use programs::Program;
pub use receiver::QuicReceiver;
pub use sender::{On, QuicSender, Socket};

/// A sender to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// quinn, in another process of this program.
    Quinn(On, Socket),
    /// quic-go.
    QuicGo,
    /// s2n-quic.
    S2nQuic,
}

impl Sender {
    /// The senders of quinn, in the order of tables.
    pub const QUINN: [Self; 6] = [
        Self::Quinn(On::Tokio, Socket::Plain),
        Self::Quinn(On::Tokio, Socket::Stated),
        Self::Quinn(On::Tokio, Socket::Learnt),
        Self::Quinn(On::Softclock, Socket::Plain),
        Self::Quinn(On::Softclock, Socket::Stated),
        Self::Quinn(On::Softclock, Socket::Learnt),
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quinn(On::Tokio, Socket::Plain) => "quinn, tokio",
            Self::Quinn(On::Tokio, Socket::Stated) => "quinn, tokio, paced, stated rate",
            Self::Quinn(On::Tokio, Socket::Learnt) => "quinn, tokio, paced, learnt rate",
            Self::Quinn(On::Softclock, Socket::Plain) => "quinn, softclock",
            Self::Quinn(On::Softclock, Socket::Stated) => "quinn, softclock, paced, stated rate",
            Self::Quinn(On::Softclock, Socket::Learnt) => "quinn, softclock, paced, learnt rate",
            Self::QuicGo => "quic-go",
            Self::S2nQuic => "s2n-quic",
        }
    }
}

/// A sender's address, and its certificate.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The address.
    pub address: SocketAddr,
    /// The certificate and its key.
    pub certificate: &'a Certificate,
}

/// The settings of paced sockets.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// The rate, for a sender with a stated one.
    pub stated: Rate,
    /// The most datagrams that leave back to back.
    pub burst: u32,
}

/// The program and the arguments of a process.
pub type Words = (PathBuf, Vec<OsString>);

impl Sender {
    /// Returns the process of the sender, with the settings of its socket if that is paced. `programs` holds those in
    /// other languages.
    ///
    /// # Errors
    /// The sender's program is not among `programs`.
    pub fn words(
        self,
        identity: Identity<'_>,
        paced: Paced,
        programs: &[(Self, Program)],
    ) -> io::Result<Words> {
        let files = [identity.certificate.chain(), identity.certificate.key()];
        let mut rest = vec![identity.address.to_string().into()];
        rest.extend(files.map(OsString::from));
        match self {
            Self::Quinn(on, socket) => {
                let mut words: Vec<OsString> = vec!["quic-sender".into()];
                words.extend([word(on).into(), word(socket).into()]);
                words.extend(rest);
                words.extend([
                    paced.stated.to_string().into(),
                    paced.burst.to_string().into(),
                ]);
                Ok((std::env::current_exe()?, words))
            }
            Self::QuicGo | Self::S2nQuic => {
                let found = programs.iter().find(|(sender, _)| *sender == self);
                let (_, program) = found.ok_or(io::ErrorKind::NotFound)?;
                Ok((program.path().to_owned(), rest))
            }
        }
    }
}

/// The receiver's part of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The time of the transfer, from the request on.
    pub during: Duration,
    /// The most bytes that may be under way.
    pub window: u32,
}

/// Returns the process of the receiver.
///
/// # Errors
/// This program is not found.
pub fn receiver(identity: Identity<'_>, request: Request) -> io::Result<Words> {
    let words = vec![
        "quic-receiver".into(),
        identity.address.to_string().into(),
        identity.certificate.chain().into(),
        request.during.as_millis().to_string().into(),
        request.window.to_string().into(),
    ];
    Ok((std::env::current_exe()?, words))
}
