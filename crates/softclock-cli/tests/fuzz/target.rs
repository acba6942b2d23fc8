//! The server under test, with options that the round's seed chooses.

use std::fs;
use std::net::SocketAddr;
use std::rc::Rc;

use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use crate::asked::{FILES, Mode, file_name};
use crate::limits::{OPTIONS, PROXY_OPTIONS, is_without};
use crate::own_stack;
use crate::random::{Random, content};
use crate::recorder::Recorder;
use crate::server::{Server, softclock};
use crate::transport::Trust;

/// The data that clients need about the server.
pub(crate) struct Target {
    pub(crate) mode: Mode,
    pub(crate) address: SocketAddr,
    pub(crate) trust: Option<Trust>,
    pub(crate) recorder: Rc<Recorder>,
    /// The proxy waits longer for its upstreams than sessions wait for it.
    pub(crate) is_patient: bool,
}

/// The program, and the directory with its site and its certificate.
pub(crate) struct Subject {
    pub(crate) server: Server,
    pub(crate) threads: usize,
    /// The options that it was started with.
    pub(crate) options: Vec<String>,
    trust: Option<Trust>,
    _directory: TempDir,
}

impl Subject {
    pub(crate) fn is_paced(&self) -> bool {
        (self.options.iter()).any(|option| option.starts_with("--pace="))
    }

    /// Starts the program; it has an address for the clients, and one without TLS for the bystander.
    pub(crate) fn start(mode: Mode, upstream: SocketAddr, random: &mut Random) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let threads = random.pick(&[1, 1, 2]);
        let mut options: Vec<String> = OPTIONS.iter().map(|&option| option.to_owned()).collect();
        options.push(format!("--threads={threads}"));
        if random.chance(25) && !is_without("pace") {
            options.push("--pace=200mbit".into());
        }
        if random.chance(30) {
            options.push(format!(
                "--events={}",
                random.pick(&["io_uring", "poll", "select"])
            ));
        }
        let scheme = if mode.is_tls() { "tls:" } else { "" };
        options.push(format!("--listen={scheme}127.0.0.1:0"));
        options.extend([
            "--listen=127.0.0.1:0".into(),
            "--metrics=127.0.0.1:0".into(),
        ]);
        let trust = mode.is_tls().then(|| certify(&directory, &mut options));
        let mut command = softclock();
        if mode.is_proxy() {
            options.extend(PROXY_OPTIONS.iter().map(|&option| option.to_owned()));
            // `select` does not report the loss of a client from which nothing is read.
            let sees_lost = !options.iter().any(|option| option == "--events=select");
            let is_patient = random.chance(50) && sees_lost && !is_without("patient");
            options.push(
                if is_patient {
                    PATIENT
                } else {
                    "--response-timeout=1"
                }
                .into(),
            );
            options.push(format!("--max-fails={}", random.pick(&["0", "3"])));
            options.push(format!("--upstream=http://{upstream}"));
            command.arg("proxy").args(&options);
        } else {
            options.push(format!("--cache={}", random.pick(&["0", "64M"])));
            for (id, len) in FILES {
                let path = directory.path().join(&file_name(id, len)[1..]);
                fs::write(path, content(id, len)).expect("a file");
            }
            command.arg("serve").args(&options).arg(directory.path());
        }
        Self {
            server: Server::spawn(&mut command),
            threads,
            options,
            trust,
            _directory: directory,
        }
    }

    pub(crate) fn target(&self, mode: Mode, recorder: &Rc<Recorder>) -> Target {
        Target {
            mode,
            address: self.server.addresses()[0],
            trust: self.trust.clone(),
            recorder: Rc::clone(recorder),
            is_patient: self.options.iter().any(|option| option == PATIENT),
        }
    }

    /// The address for the bystander.
    pub(crate) fn beside(&self) -> SocketAddr {
        self.server.addresses()[1]
    }
}

fn certify(directory: &TempDir, options: &mut Vec<String>) -> Trust {
    let made = rcgen::generate_simple_self_signed(own_stack::names().collect::<Vec<_>>())
        .expect("a certificate");
    let (certificate, key) = (
        directory.path().join(".cert.pem"),
        directory.path().join(".key.pem"),
    );
    fs::write(&certificate, made.cert.pem()).expect("a file");
    fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    options.push(format!("--tls-cert={}", certificate.display()));
    options.push(format!("--tls-key={}", key.display()));
    Trust::only(CertificateDer::from(made.cert.der().to_vec()))
}

/// With this timeout, a silent request ends only when its client leaves.
const PATIENT: &str = "--response-timeout=60";
