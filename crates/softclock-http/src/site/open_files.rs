//! Limits the number of files that a thread's responses hold open.
//!
//! An HTTP/2 connection may have a file open for each of its streams, most of which may wait for the client. They must
//! not use up the descriptors that accepting connections needs. So a response only borrows its descriptor: when the
//! budget is exceeded, a file that was not read recently is closed, and its response reopens it to continue. No
//! response waits for another, and none is refused. If the path then leads to another file, or the file has changed,
//! the response fails as it does when its file shrinks.
//!
//! The file to close is found by the CLOCK algorithm, as in the cache: a hand moves round and spares files that were
//! read since it last passed. Files whose descriptor is in use are not closed. They are few: an HTTP/1 connection has
//! at most one, which `sendfile(2)` reads, and reads that wait for a disk are limited
//! ([`disk_reads`](crate::site::disk_reads)).

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

use softclock::fs::{Failure, File, Metadata, Root};

use crate::observe::limit::Limit;

/// The file of a response. Clones share its descriptor.
#[derive(Clone)]
pub(crate) struct OpenFile(Rc<Shared>);

struct Shared {
    file: RefCell<Option<File>>,
    metadata: Metadata,
    /// The root and path for reopening the file; `None` if it stays open.
    origin: Option<(Root, PathBuf)>,
    /// Whether the file was read since the hand last passed.
    is_used: Cell<bool>,
    /// Its index in [`OpenFiles::files`].
    place: Cell<usize>,
}

/// A file that is being reopened.
pub(crate) type Opening = Pin<Box<dyn Future<Output = io::Result<File>>>>;

/// The open files of a thread.
struct OpenFiles {
    limit: usize,
    files: Vec<Weak<Shared>>,
    hand: usize,
}

/// Sets the number of files that the responses of this thread may hold open.
pub(crate) fn set_limit(limit: usize) {
    OPEN.with_borrow_mut(|open| {
        open.limit = limit.max(1);
        while open.files.len() > open.limit && open.close_one().is_some() {}
    });
}

/// Closes a file that can be reopened; returns false if no file can be closed. Used when descriptors have run out
/// despite the budget. O(n) in the number of files.
pub(crate) fn close_one() -> bool {
    let closed = OPEN.with_borrow_mut(OpenFiles::close_one);
    closed.is_some()
}

/// Returns whether an error means that descriptors or memory have run out.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    matches!(Failure::of(error), Failure::Exhausted)
}

impl OpenFile {
    /// Wraps a file that may be closed between reads, and is then reopened from `path` below `root`.
    pub(crate) fn new(file: File, root: &Root, path: PathBuf) -> Self {
        let this = Self::with_origin(&file, Some((root.clone(), path)));
        this.keep(file);
        this
    }

    /// Wraps a file of unknown origin, which stays open and is not counted.
    pub(crate) fn staying_open(file: File) -> Self {
        let this = Self::with_origin(&file, None);
        *this.0.file.borrow_mut() = Some(file);
        this
    }

    fn with_origin(file: &File, origin: Option<(Root, PathBuf)>) -> Self {
        Self(Rc::new(Shared {
            file: RefCell::new(None),
            metadata: *file.metadata(),
            origin,
            is_used: Cell::new(true),
            place: Cell::new(0),
        }))
    }

    /// The file's metadata when it was first opened.
    pub(crate) fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Ready with the file, reopened if it was closed. `opening` keeps the state of a reopening between calls. Drop the
    /// returned file after the next read: while it lives, its descriptor cannot be closed.
    ///
    /// # Errors
    /// Those of opening the file, and an error if it has changed since it was first opened.
    pub(crate) fn poll_file(
        &self,
        opening: &mut Option<Opening>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<File>> {
        if opening.is_none() {
            if let Some(file) = &*self.0.file.borrow() {
                self.0.is_used.set(true);
                return Poll::Ready(Ok(file.clone()));
            }
            // The kernel usually has the path cached, so that no helper thread is needed.
            match self.try_open() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    *opening = Some(self.open());
                }
                result => return Poll::Ready(result.and_then(|file| self.reopened(file))),
            }
        }
        let Some(future) = opening else {
            return Poll::Ready(Err(io::ErrorKind::NotFound.into()));
        };
        let result = ready!(future.as_mut().poll(cx));
        *opening = None;
        Poll::Ready(result.and_then(|file| self.reopened(file)))
    }

    fn try_open(&self) -> io::Result<File> {
        let (root, path) = self.0.origin.as_ref().ok_or(io::ErrorKind::NotFound)?;
        match root.try_open_file(path) {
            // The kernel has not cached the name: its error is the same number as one of those for exhaustion.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(error) if is_exhausted(&error) && close_one() => root.try_open_file(path),
            result => result,
        }
    }

    fn open(&self) -> Opening {
        let origin = self.0.origin.clone();
        Box::pin(async move {
            let (root, path) = origin.ok_or(io::ErrorKind::NotFound)?;
            root.open_file(&path).await
        })
    }

    fn reopened(&self, file: File) -> io::Result<File> {
        if *file.metadata() != self.0.metadata {
            let text = "the file has changed since its response began";
            return Err(io::Error::other(text));
        }
        self.keep(file.clone());
        Ok(file)
    }

    /// Keeps the file open, and closes others if the budget is used up.
    fn keep(&self, file: File) {
        let shared = &self.0;
        // Another clone has reopened the file in the meantime.
        if shared.file.borrow().is_some() {
            return;
        }
        *shared.file.borrow_mut() = Some(file);
        shared.is_used.set(true);
        let is_full = OPEN.with_borrow_mut(|open| {
            let mut is_full = false;
            // Several must be closed if earlier attempts found all of them in use.
            while open.files.len() >= open.limit && open.close_one().is_some() {
                is_full = true;
            }
            shared.place.set(open.files.len());
            open.files.push(Rc::downgrade(shared));
            is_full
        });
        if is_full {
            Limit::OpenFiles.reached(
                "responses",
                "a file was closed until its response continues",
            );
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.origin.is_some() && self.file.get_mut().is_some() {
            // When the thread ends, the list may have been destroyed already.
            let _ = OPEN.try_with(|open| open.borrow_mut().remove(self.place.get()));
        }
    }
}

impl OpenFiles {
    /// Closes a file that was not read recently. Checks each file at most twice.
    fn close_one(&mut self) -> Option<()> {
        for _ in 0..2 * self.files.len() {
            if self.hand >= self.files.len() {
                self.hand = 0;
            }
            let shared = self.files[self.hand].upgrade()?;
            let mut file = shared.file.borrow_mut();
            // A file with another reference is being read, and closing it would free no descriptor.
            let is_free = file.as_ref().is_some_and(|file| !file.is_shared());
            if is_free && !shared.is_used.replace(false) {
                *file = None;
                self.remove(self.hand);
                return Some(());
            }
            self.hand += 1;
        }
        None
    }

    /// Removes the file at `place`; the last file moves there.
    fn remove(&mut self, place: usize) {
        self.files.swap_remove(place);
        if let Some(moved) = self.files.get(place).and_then(Weak::upgrade) {
            moved.place.set(place);
        }
    }
}

thread_local! {
    static OPEN: RefCell<OpenFiles> = const {
        RefCell::new(OpenFiles {
            limit: usize::MAX,
            files: Vec::new(),
            hand: 0,
        })
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::future::poll_fn;
    use std::path::Path;
    use std::task::Waker;

    use crate::site::disk_reads::READS;
    use crate::site::file_body::FileBody;

    fn read(file: &OpenFile) -> io::Result<Vec<u8>> {
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(file) = file.poll_file(&mut None, &mut cx) else {
            panic!("the kernel knows the file");
        };
        let mut content = Vec::new();
        file?.try_read_at(&mut content, 100, 0)?;
        Ok(content)
    }

    fn is_open(file: &OpenFile) -> bool {
        file.0.file.borrow().is_some()
    }

    #[test]
    fn no_more_than_the_budget_are_open_and_all_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        softclock::Runtime::new().unwrap().block_on(async {
            set_limit(3);
            let mut files = Vec::new();
            for number in 0..10 {
                let name = format!("f{number}");
                fs::write(directory.path().join(&name), &name).unwrap();
                let file = root.open_file(Path::new(&name)).await.unwrap();
                files.push(OpenFile::new(file, &root, name.into()));
            }
            let open = |files: &[OpenFile]| files.iter().filter(|file| is_open(file)).count();
            assert_eq!(open(&files), 3);
            for _ in 0..2 {
                for (number, file) in files.iter().enumerate() {
                    assert_eq!(read(file).unwrap(), format!("f{number}").as_bytes());
                    assert_eq!(open(&files), 3);
                }
            }
            // A lower budget takes effect at once.
            set_limit(2);
            assert_eq!(open(&files), 2);
            // A file in use stays open.
            let held = files[9].0.file.borrow().clone();
            for file in &files[..9] {
                read(file).unwrap();
            }
            assert!(is_open(&files[9]) && held.is_some());
            drop(held);
            files.truncate(2);
            drop(files);
            let left = OPEN.with_borrow(|open| open.files.len());
            assert_eq!(left, 0);
            set_limit(usize::MAX);
        });
    }

    /// Reads that wait for a disk keep their files open regardless of the budget, but are few.
    #[test]
    fn reads_from_a_disk_hold_few_files_open() {
        const FILES: usize = 4 * READS;
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        softclock::Runtime::new().unwrap().block_on(async {
            set_limit(2);
            let mut bodies = Vec::new();
            for number in 0..FILES {
                let name = format!("f{number}");
                evicted(&directory.path().join(&name), &name);
                let file = root.open_file(Path::new(&name)).await.unwrap();
                let file = OpenFile::new(file, &root, name.into());
                bodies.push(FileBody::of(file, None));
            }
            let mut cx = Context::from_waker(Waker::noop());
            for body in &mut bodies {
                let _ = body.poll_chunk(usize::MAX, &mut cx);
            }
            let open = OPEN.with_borrow(|open| open.files.len());
            assert!(open <= READS + 2, "{open} open");
            for (number, body) in bodies.iter_mut().enumerate() {
                if body.remaining() > 0 {
                    let content = poll_fn(|cx| body.poll_chunk(usize::MAX, cx)).await;
                    assert_eq!(content.unwrap().unwrap(), format!("f{number}").as_bytes());
                }
            }
            let open = OPEN.with_borrow(|open| open.files.len());
            assert!(open <= READS + 2, "{open} open");
            set_limit(usize::MAX);
        });
    }

    /// Writes a file and evicts its content from the page cache.
    fn evicted(path: &Path, content: &str) {
        fs::write(path, content).unwrap();
        let file = fs::File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    /// The kernel reports a name that it has not cached by the number that also means that memory has run out.
    #[test]
    fn an_uncached_name_closes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("f"), "f").unwrap();
        let root = Root::open(directory.path()).unwrap();
        softclock::Runtime::new().unwrap().block_on(async {
            let file = root.open_file(Path::new("f")).await.unwrap();
            let other = OpenFile::new(file.clone(), &root, "f".into());
            let origin = Some((root.clone(), "never-looked-up".into()));
            let uncached = OpenFile::with_origin(&file, origin);
            drop(file);
            let error = uncached.try_open().map(drop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(is_open(&other));
        });
    }

    #[test]
    fn another_file_by_the_same_name_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "one").unwrap();
        let root = Root::open(directory.path()).unwrap();
        softclock::Runtime::new().unwrap().block_on(async {
            let file = root.open_file(Path::new("f")).await.unwrap();
            let file = OpenFile::new(file, &root, "f".into());
            while close_one() {}
            assert!(!is_open(&file));
            assert_eq!(read(&file).unwrap(), b"one");
            while close_one() {}
            fs::write(directory.path().join("g"), "two").unwrap();
            fs::rename(directory.path().join("g"), &path).unwrap();
            assert!(read(&file).is_err());
        });
    }
}
