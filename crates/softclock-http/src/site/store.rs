//! The files below a directory, with a cache of small ones.
//!
//! The cache holds a [`Resource`] for each path: the metadata of the file and its compressed siblings when they were
//! last checked, and the contents that were requested and are small. For [`Limits::revalidate`] an entry is used
//! without a system call. Then the files are opened again, which does not wait if the kernel has them cached, and if
//! the metadata of any has changed, the entry is replaced. Content and validators always belong together: both come
//! from one descriptor, whose metadata is compared before and after reading. While descriptors have run out, cached
//! content is used for longer.
//!
//! The cache does not hold missing files (a new file is served at once), directories, content larger than
//! [`CONTENT_MAX`], and files changed so recently that another change might not alter their times.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use softclock::Instant;
use softclock::fs::{File, Metadata, Root};

use crate::net::buffers::CHUNK_BYTES;
use crate::observe::limit::{Limit, Throttle};
use crate::site::cache::{Cache, Limits, Lookup};
use crate::site::open_files::{self, OpenFile, is_exhausted};
use crate::site::refusal::Refusal;
use crate::site::representation::{Data, Head};
use crate::syntax::coding::{CODINGS, Coding};
use crate::syntax::path::RequestPath;

/// The files of a directory. A clone shares the directory and has its own cache.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: Root,
    cache: RefCell<Cache<Arc<Resource>>>,
}

/// A file and its siblings, with their metadata when they were last checked.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// The entry of [`Coding::Identity`] is always present.
    states: States,
    loaded: [Option<Arc<Loaded>>; CODINGS],
}

/// Metadata by coding.
type States = [Option<Metadata>; CODINGS];

/// Open files by coding.
type Files = [Option<File>; CODINGS];

/// Content with its metadata.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) head: Head,
    pub(crate) content: Bytes,
}

/// A resource, and the files that were opened to find it.
pub(crate) struct Handle {
    resource: Arc<Resource>,
    files: Files,
    checked: Instant,
}

/// The reason why content could not be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The file has changed since it was found; find it again.
    Changed,
    Failed(io::Error),
}

impl LoadError {
    /// Treats a failure to open a file that existed before as a change, unless descriptors have run out.
    fn of_opening(error: io::Error) -> Self {
        match is_exhausted(&error) {
            true => Self::Failed(error),
            false => Self::Changed,
        }
    }
}

impl Store {
    pub(crate) fn new(root: Root, limits: Limits) -> Self {
        Self {
            root,
            cache: RefCell::new(Cache::new(limits)),
        }
    }

    pub(crate) const fn root(&self) -> &Root {
        &self.root
    }

    pub(crate) fn limits(&self) -> Limits {
        self.cache.borrow().limits()
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.cache = RefCell::new(Cache::new(limits));
    }

    /// Returns the cached resource of a path if it is fresh. No system call.
    pub(crate) fn look_up(&self, path: &RequestPath, now: Instant) -> Option<Arc<Resource>> {
        match self.cache.borrow_mut().look_up(path.as_bytes(), now) {
            Lookup::Fresh(resource, _) => Some(resource),
            Lookup::Stale(_) | Lookup::Missing => None,
        }
    }

    /// Finds the file of a path and, if `siblings`, its compressed siblings. Returns `None` for a directory.
    ///
    /// # Errors
    /// The refusal for the error of opening the file.
    pub(crate) async fn find(
        &self,
        path: &RequestPath,
        siblings: bool,
    ) -> Result<Option<Handle>, Refusal> {
        // Taken before the files are opened, as a change after that may be missed.
        let checked = softclock::now();
        let known = match self.cache.borrow_mut().look_up(path.as_bytes(), checked) {
            Lookup::Fresh(resource, checked) => {
                return Ok(Some(Handle::of_known(resource, checked)));
            }
            Lookup::Stale(resource) => Some(resource),
            Lookup::Missing => None,
        };
        let files = match self.open_all(path, siblings).await {
            Ok(files) => files,
            Err(error) => {
                let refusal = refusal_of(&error, path.relative());
                return match known {
                    // Without descriptors, content that was current recently is better than an error.
                    Some(known) if is_exhausted(&error) => {
                        Ok(Some(Handle::of_known(known, checked)))
                    }
                    _ => {
                        self.forget(path);
                        Err(refusal)
                    }
                };
            }
        };
        // Only the metadata of the opened descriptors counts: by now the path may lead to another file.
        let Some(original) = &files[Coding::Identity as usize] else {
            unreachable!("the original was opened")
        };
        if !original.metadata().is_file() {
            self.forget(path);
            return match original.metadata().is_dir() {
                true => Ok(None),
                false => Err(Refusal::Forbidden),
            };
        }
        let states = files
            .each_ref()
            .map(|file| file.as_ref().map(|file| *file.metadata()));
        let mut cache = self.cache.borrow_mut();
        let resource = match known {
            // Nothing has changed, so the loaded contents stay valid.
            Some(known) if known.states == states => {
                cache.confirm(path.as_bytes(), checked);
                known
            }
            _ => {
                let resource = Arc::new(Resource::new(states));
                // The old entry is wrong even if the new one must not be cached yet.
                cache.remove(path.as_bytes());
                if resource.is_settled(SystemTime::now()) {
                    cache.insert(path.as_bytes(), Arc::clone(&resource), 0, checked);
                }
                resource
            }
        };
        Ok(Some(Handle {
            resource,
            files,
            checked,
        }))
    }

    /// Opens the original, of any file type, and its siblings if it is a regular file. If descriptors have run out,
    /// closes the file of a waiting response and tries again.
    async fn open_all(&self, path: &RequestPath, siblings: bool) -> io::Result<Files> {
        let original = match self.root.open_file(path.relative()).await {
            Err(error) if is_exhausted(&error) && open_files::close_one() => {
                self.root.open_file(path.relative()).await?
            }
            result => result?,
        };
        let mut files = [const { None }; CODINGS];
        if siblings && original.metadata().is_file() {
            files = self.open_siblings(path, original.metadata()).await?;
        }
        files[Coding::Identity as usize] = Some(original);
        Ok(files)
    }

    /// Opens the siblings that exist. Those older than the original are ignored, as they were made from other content,
    /// and so are those that cannot be opened. Names that the kernel has not cached are opened on a helper thread, all
    /// in one call.
    ///
    /// # Errors
    /// If descriptors have run out.
    async fn open_siblings(&self, path: &RequestPath, original: &Metadata) -> io::Result<Files> {
        let mut files = [const { None }; CODINGS];
        let mut unknown = Vec::new();
        for coding in Coding::COMPRESSED {
            let name = sibling(path, coding);
            // This never waits for the disk, but fails with `WouldBlock` if the kernel has not cached the name.
            match self.root.try_open_file(&name) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    unknown.push((coding, name));
                }
                // Otherwise the sibling would count as missing, and be cached as such.
                Err(error) if is_exhausted(&error) => return Err(error),
                result => files[coding as usize] = result.ok(),
            }
        }
        if !unknown.is_empty() {
            let root = self.root.clone();
            let open =
                move |(coding, name): (Coding, PathBuf)| (coding, root.open_file_waiting(&name));
            let opened = softclock::spawn_blocking(move || {
                let opened = unknown.into_iter().map(open);
                opened.collect::<Vec<_>>()
            });
            for (coding, file) in opened.await {
                match file {
                    Err(error) if is_exhausted(&error) => return Err(error),
                    file => files[coding as usize] = file.ok(),
                }
            }
        }
        let current = |file: &File| {
            let metadata = file.metadata();
            metadata.is_file() && metadata.modified_ns() >= original.modified_ns()
        };
        Ok(files.map(|file| file.filter(current)))
    }

    /// Returns the content of a found resource in `coding`. Small content is read and cached with `head`.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub(crate) async fn load(
        &self,
        path: &RequestPath,
        handle: &mut Handle,
        coding: Coding,
        head: Head,
    ) -> Result<Data, LoadError> {
        let state = handle.resource.states[coding as usize].ok_or(LoadError::Changed)?;
        let file = match handle.files[coding as usize].take() {
            Some(file) => file,
            None => self
                .root
                .open_file(&sibling(path, coding))
                .await
                .map_err(LoadError::of_opening)?,
        };
        // The path may lead to another file by now.
        if *file.metadata() != state {
            return Err(LoadError::Changed);
        }
        // Content of at most one chunk is read at once even if it is too large for the cache: a body would read it in
        // one piece as well.
        let kept_max = self.content_max();
        if state.len() > kept_max.max(CHUNK_BYTES) as u64 {
            let file = OpenFile::new(file, &self.root, sibling(path, coding));
            return Ok(Data::File(file));
        }
        let content = read_whole(&file, state.len() as usize).await?;
        // If the file changed while it was read, the content may mix two versions.
        if file.current_metadata().map_err(LoadError::Failed)? != state {
            return Err(LoadError::Changed);
        }
        if content.len() <= kept_max && handle.resource.is_settled(SystemTime::now()) {
            self.keep(
                path,
                handle,
                coding,
                Loaded {
                    head,
                    content: content.clone(),
                },
            );
        }
        Ok(Data::Bytes(content))
    }

    fn keep(&self, path: &RequestPath, handle: &Handle, coding: Coding, loaded: Loaded) {
        let mut resource = Resource::clone(&handle.resource);
        resource.loaded[coding as usize] = Some(Arc::new(loaded));
        let bytes = resource.bytes();
        let mut cache = self.cache.borrow_mut();
        cache.insert(path.as_bytes(), Arc::new(resource), bytes, handle.checked);
    }

    /// Removes a path from the cache, so that its files are opened again.
    pub(crate) fn forget(&self, path: &RequestPath) {
        self.cache.borrow_mut().remove(path.as_bytes());
    }

    /// Returns the largest content that is cached: a single file may use only a small part of the cache.
    fn content_max(&self) -> usize {
        CONTENT_MAX.min(self.limits().bytes / 16)
    }
}

impl Resource {
    fn new(states: States) -> Self {
        Self {
            states,
            loaded: [const { None }; CODINGS],
        }
    }

    pub(crate) const fn has(&self, coding: Coding) -> bool {
        self.states[coding as usize].is_some()
    }

    /// Returns whether the resource has more than one coding.
    pub(crate) fn has_siblings(&self) -> bool {
        Coding::COMPRESSED
            .into_iter()
            .any(|coding| self.has(coding))
    }

    pub(crate) const fn loaded(&self, coding: Coding) -> Option<&Arc<Loaded>> {
        self.loaded[coding as usize].as_ref()
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let mut states = self.states.iter().flatten();
        states.all(|state| is_settled(state, now))
    }

    fn bytes(&self) -> usize {
        let loaded = self.loaded.iter().flatten();
        loaded
            .map(|loaded| loaded.content.len() + loaded.head.bytes())
            .sum()
    }
}

impl Handle {
    fn of_known(resource: Arc<Resource>, checked: Instant) -> Self {
        Self {
            resource,
            files: [const { None }; CODINGS],
            checked,
        }
    }

    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Returns the metadata of the file in this coding.
    pub(crate) fn state(&self, coding: Coding) -> Option<&Metadata> {
        self.resource.states[coding as usize].as_ref()
    }
}

async fn read_whole(file: &File, len: usize) -> Result<Bytes, LoadError> {
    let mut content = Vec::with_capacity(len);
    while content.len() < len {
        let (at, before) = (content.len() as u64, content.len());
        let read = file.read_at(content, len - before, at).await;
        content = read.map_err(LoadError::Failed)?;
        if content.len() == before {
            return Err(LoadError::Changed);
        }
    }
    Ok(content.into())
}

/// Returns whether any later change would alter the file's times. Those are taken from a clock that ticks at least
/// every 10 ms, or, if they have no fraction, from a file system that stores whole seconds. Times in the future prove
/// nothing.
fn is_settled(state: &Metadata, now: SystemTime) -> bool {
    let newest = state.changed().max(state.modified());
    let whole = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.is_ok_and(|since| since.subsec_nanos() == 0)
    };
    let tick = if whole(state.changed()) {
        COARSE_TICK
    } else {
        TICK
    };
    now.duration_since(newest).is_ok_and(|age| age > tick)
}

fn sibling(path: &RequestPath, coding: Coding) -> PathBuf {
    let mut name = path.relative().as_os_str().to_owned();
    name.push(coding.suffix());
    name.into()
}

pub(crate) fn refusal_of(error: &io::Error, path: &Path) -> Refusal {
    let refusal = Refusal::of_file_error(error);
    if is_exhausted(error) {
        Limit::Descriptors.reached(error, "file not opened; answered from memory, or 503");
    } else if matches!(refusal, Refusal::Unavailable | Refusal::Internal)
        && let Some(more) = FAILURES.pass(softclock::now())
    {
        let more = (more > 0).then_some(more);
        tracing::warn!(?path, %error, more, "cannot open or read");
    }
    refusal
}

/// Throttles the log, as clients may repeatedly request a file that cannot be read.
static FAILURES: Throttle = Throttle::new();

/// The largest content that is cached. Larger content is read while it is sent, and opening its file costs little in
/// comparison.
pub(crate) const CONTENT_MAX: usize = 256 << 10;

const TICK: Duration = Duration::from_millis(50);

const COARSE_TICK: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;
    use std::sync::Mutex;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Collects the values of events, as a log shows them.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<String>>);

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    impl Visit for Log {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            *self.0.lock().unwrap() += &format!("{field}={value:?} ");
        }
    }

    /// Paths are decoded, so clients could otherwise forge lines, or control the terminal that shows them.
    #[test]
    fn control_characters_of_paths_are_escaped_in_the_log() {
        let log = Log::default();
        let error = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
        let runtime = softclock::Runtime::new().unwrap();
        tracing::subscriber::with_default(log.clone(), || {
            runtime.block_on(async {
                // Another test may have used the only line of a second.
                for _ in 0..30 {
                    refusal_of(&error, Path::new("a\n\x1b[2Jb"));
                    if !log.0.lock().unwrap().is_empty() {
                        break;
                    }
                    softclock::sleep(Duration::from_millis(100)).await;
                }
            });
        });
        let text = log.0.lock().unwrap();
        assert!(text.contains("2Jb"), "{text}");
        assert!(!text.contains(char::is_control), "{text}");
    }
}
