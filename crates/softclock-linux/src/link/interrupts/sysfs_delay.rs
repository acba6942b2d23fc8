//! The delay of a link's interrupts by `/sys/class/net/IF/`: for all queues of the link, including those that it gets
//! later.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use super::super::napi::nanoseconds;
use super::super::{Link, read_number};
use super::{InterruptDelay, Write};

/// The files with the settings of a link. They stay open, so that renaming the link does no harm.
#[derive(Debug)]
pub(super) struct SysfsDelay {
    rounds: Setting,
    timeout: Setting,
}

#[derive(Debug)]
struct Setting {
    file: File,
    /// The value when the file was opened.
    before: u64,
}

impl SysfsDelay {
    /// Opens the settings.
    ///
    /// # Errors
    /// `PermissionDenied` or `ReadOnlyFilesystem`; `NotFound` if `/sys` shows another network namespace.
    pub(super) fn of(link: &Link) -> io::Result<Self> {
        Ok(Self {
            rounds: Setting::open(link, ROUNDS)?,
            timeout: Setting::open(link, TIMEOUT)?,
        })
    }

    /// The writes that restore the settings read when the files were opened.
    pub(super) fn undo(&self) -> io::Result<Vec<Write>> {
        let undo = |setting: &Setting| {
            let file = setting.file.try_clone()?;
            Ok(Write::new(file.into(), text(setting.before)))
        };
        [&self.rounds, &self.timeout]
            .map(undo)
            .into_iter()
            .collect()
    }

    /// Sets the delay without its suspension, for which `/sys` has no file.
    pub(super) fn set(&self, delay: InterruptDelay) -> io::Result<()> {
        (&self.timeout.file).write_all(&text(nanoseconds(delay.timeout)))?;
        (&self.rounds.file).write_all(&text(delay.rounds.into()))
    }
}

impl Setting {
    fn open(link: &Link, name: &str) -> io::Result<Self> {
        let path = path(link, name)?;
        let before = read_number(&path)?;
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Self { file, before })
    }
}

/// Reads the settings of a link.
pub(super) fn read(link: &Link) -> io::Result<InterruptDelay> {
    let number = |name| read_number(&path(link, name)?);
    Ok(InterruptDelay {
        rounds: number(ROUNDS)? as u32,
        timeout: Duration::from_nanos(number(TIMEOUT)?),
        suspension: Duration::ZERO,
    })
}

fn path(link: &Link, name: &str) -> io::Result<PathBuf> {
    fs::canonicalize(link.sysfs()?.join(name))
}

fn text(value: u64) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

const ROUNDS: &str = "napi_defer_hard_irqs";
const TIMEOUT: &str = "gro_flush_timeout";
