//! The end of a delay: the settings of a link become what they were before.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, recv};

use super::super::netlink::{ERROR, finish, next_message};

/// The writes that restore the settings of a link, prepared before they are needed.
#[derive(Debug)]
pub(super) struct Undo {
    /// Requests of netlink, one for each instance of receive work.
    pub(super) requests: Vec<Write>,
    /// Writes to the files of `/sys`, for all queues of the link.
    pub(super) files: Vec<Write>,
}

/// Bytes to write to a file of `/sys` or to a netlink socket.
#[derive(Debug)]
pub(super) struct Write {
    file: OwnedFd,
    bytes: Vec<u8>,
}

impl Undo {
    /// The files and sockets that are written to.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let all = self.requests.iter().chain(&self.files);
        all.map(|write| write.file.as_fd())
    }

    /// Restores the settings as far as it can: those of a link that is gone need not be.
    ///
    /// Writes the files if there are no requests, or if an instance has ended, as while the link is down. The driver
    /// may have kept its settings for the instance that follows (`napi_config`), which only the files change then.
    /// Makes system calls and uses no memory but the stack, since a child after a fork calls it.
    pub(super) fn run(&self) {
        let mut has_ended = self.requests.is_empty();
        for request in &self.requests {
            let answer = request.request();
            has_ended |= answer.is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT));
        }
        if !has_ended {
            return;
        }
        for file in &self.files {
            let _ = rustix::io::write(&file.file, &file.bytes);
        }
        // The files are for all instances, of which each had settings of its own.
        for request in &self.requests {
            let _ = request.request();
        }
    }
}

impl Write {
    pub(super) const fn new(file: OwnedFd, bytes: Vec<u8>) -> Self {
        Self { file, bytes }
    }

    /// Makes a request of netlink; returns its result.
    fn request(&self) -> io::Result<()> {
        let mut buffer = [0; ANSWER_BYTES];
        // A process that was killed may have left answers unread.
        while recv(&self.file, &mut buffer[..], RecvFlags::DONTWAIT)
            .is_ok_and(|(bytes, _)| bytes > 0)
        {}
        rustix::io::write(&self.file, &self.bytes)?;
        let (bytes, _) = recv(&self.file, &mut buffer[..], RecvFlags::empty())?;
        match next_message(&mut buffer.get(..bytes).unwrap_or_default()) {
            Some((ERROR, body)) => finish(body, ()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// More than an acknowledgement of these requests has, which repeats a request that failed.
const ANSWER_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixDatagram;
    use std::thread;

    use super::super::super::netlink::message;
    use super::*;

    /// Runs an undo of two instances, for which the kernel gives these results. Returns the number of requests, and
    /// what was written to the file.
    fn run(results: [i32; 2]) -> (usize, String) {
        let (near, far) = UnixDatagram::pair().unwrap();
        let answer = |result: i32| message(ERROR, 0, &result.to_ne_bytes(), &[]);
        far.send(&answer(0)).unwrap();
        let kernel = thread::spawn(move || {
            let mut asked = 0;
            let mut request = [0; 16];
            while let Ok(1..) = far.recv(&mut request) {
                let instance = usize::from(request[0]);
                far.send(&answer(results[instance])).unwrap();
                asked += 1;
            }
            asked
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        let socket = || near.try_clone().unwrap().into();
        let undo = Undo {
            requests: vec![
                Write::new(socket(), vec![0; 3]),
                Write::new(socket(), vec![1; 3]),
            ],
            files: vec![Write::new(file.reopen().unwrap().into(), b"7\n".into())],
        };
        undo.run();
        near.send(&[]).unwrap();
        let written = fs::read_to_string(file.path()).unwrap();
        (kernel.join().unwrap(), written)
    }

    /// An instance that has ended, as while the link is down, may have left its settings to the next: the files reset
    /// them. The other instance then returns to its own settings once more.
    #[test]
    fn the_settings_of_an_ended_instance_are_restored_by_files() {
        assert_eq!(run([0, 0]), (2, String::new()));
        assert_eq!(run([0, -libc::EPERM]), (2, String::new()));
        assert_eq!(run([0, -libc::ENOENT]), (4, "7\n".into()));
        assert_eq!(run([-libc::ENOENT, 0]), (4, "7\n".into()));
    }
}
