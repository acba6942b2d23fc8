//! The files below a directory, those that are small and asked for often kept in memory.
//!
//! What is kept is a [`Resource`]: the state that the file and its compressed siblings were seen in, and the content of
//! those that were asked for and are small. For [`Limits::revalidate`] it is believed without asking the file system;
//! then the files are opened again, which does not wait where the kernel's caches answer, and if any is in another
//! state all is forgotten. Content and validators always belong together: both come from one descriptor, whose state is
//! compared before and after the reading. While descriptors have run out, kept content is used for longer.
//!
//! Not kept: that a file is missing (one that appears is served at once), directories, content larger than
//! [`CONTENT_MAX`], and what was changed so lately that another change might leave no trace in the file's times.

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

/// A directory's files. A clone shares the directory, and has a cache of its own.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: Root,
    cache: RefCell<Cache<Arc<Resource>>>,
}

/// A file and its siblings, in the states they were seen in.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// The identity's is always there.
    states: States,
    loaded: [Option<Arc<Loaded>>; CODINGS],
}

/// By coding.
type States = [Option<Metadata>; CODINGS];

/// By coding.
type Files = [Option<File>; CODINGS];

/// Content with what is told of it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) head: Head,
    pub(crate) content: Bytes,
}

/// A resource found, and the files that were opened to find it.
pub(crate) struct Handle {
    resource: Arc<Resource>,
    files: Files,
    checked: Instant,
}

/// Why there is no content.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// It is no longer what was found; look again.
    Changed,
    Failed(io::Error),
}

impl LoadError {
    /// Takes a failure to open a file that was there before for a change of the file, unless descriptors have run out.
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

    /// What is known of a path without asking the file system.
    pub(crate) fn look_up(&self, path: &RequestPath, now: Instant) -> Option<Arc<Resource>> {
        match self.cache.borrow_mut().look_up(path.as_bytes(), now) {
            Lookup::Fresh(resource, _) => Some(resource),
            Lookup::Stale(_) | Lookup::Missing => None,
        }
    }

    /// The file that a path leads to, and, if `siblings`, which encoded forms of it there are; `None` for a directory.
    ///
    /// # Errors
    /// That of opening it.
    pub(crate) async fn find(
        &self,
        path: &RequestPath,
        siblings: bool,
    ) -> Result<Option<Handle>, Refusal> {
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
                    // Without descriptors, content that was current lately is better than none.
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
            Some(known) if known.states == states => {
                cache.confirm(path.as_bytes(), checked);
                known
            }
            _ => {
                let resource = Arc::new(Resource::new(states));
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

    /// Opens the original, whatever it is, and, if it is a file, its encoded forms. If descriptors have run out, closes
    /// the file of a response that waits, and tries again.
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

    /// The encoded forms, where they are. One older than its original was made from another content, and one that can't
    /// be opened is none. A name that the kernel does not know yet takes a helper, which looks at all such at once.
    ///
    /// # Errors
    /// If descriptors have run out.
    async fn open_siblings(&self, path: &RequestPath, original: &Metadata) -> io::Result<Files> {
        let mut files = [const { None }; CODINGS];
        let mut unknown = Vec::new();
        for coding in Coding::COMPRESSED {
            let name = sibling(path, coding);
            match self.root.try_open_file(&name) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    unknown.push((coding, name));
                }
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

    /// The content of what was found, and what to tell of it. `head` is asked if that is not known yet.
    ///
    /// # Errors
    /// [`LoadError`].
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
        if *file.metadata() != state {
            return Err(LoadError::Changed);
        }
        let kept_max = self.content_max();
        if state.len() > kept_max.max(CHUNK_BYTES) as u64 {
            let file = OpenFile::new(file, &self.root, sibling(path, coding));
            return Ok(Data::File(file));
        }
        let content = read_whole(&file, state.len() as usize).await?;
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

    /// The next look at this path asks the file system.
    pub(crate) fn forget(&self, path: &RequestPath) {
        self.cache.borrow_mut().remove(path.as_bytes());
    }

    /// One file takes a small part of the cache at most.
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

    /// Whether there is a choice.
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

    /// The state of the file of this coding.
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

/// Whether a change from now on would show in the file's times. These come from a clock that ticks every 10 ms at
/// worst; without a fraction, from a file system that knows seconds only. Dates in the future say nothing.
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
        tracing::warn!(path = %path.display(), %error, more, "cannot open or read");
    }
    refusal
}

/// Throttles the log: a client may ask again and again for a file that cannot be read.
static FAILURES: Throttle = Throttle::new();

/// The largest content kept; a larger one is read while it is sent, for which opening it costs nothing.
pub(crate) const CONTENT_MAX: usize = 256 << 10;

const TICK: Duration = Duration::from_millis(50);

const COARSE_TICK: Duration = Duration::from_secs(2);
