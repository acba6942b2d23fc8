//! From a request to a response.

use std::borrow::Cow;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION};
use http::{Method, Request, Response, StatusCode, Version};

use crate::observe::telemetry;
use crate::site::body::Body;
use crate::site::bundled;
use crate::site::content::{Content, DEFAULT_INDEX, Site};
use crate::site::listing;
use crate::site::media;
use crate::site::refusal::{ALLOWED_METHODS, Refusal};
use crate::site::representation::{Data, Head, Wanted};
use crate::site::store::{Handle, LoadError, Resource, Store, refusal_of};
use crate::syntax::coding::{Coding, Preference};
use crate::syntax::path::{PathError, RequestPath};

impl Site {
    /// Answers one request. If the disk must be waited for, this happens on a helper thread.
    ///
    /// # Cancel safety
    /// If the future is dropped, only the response is lost. A helper thread finishes its read.
    pub async fn respond<B>(&self, request: &Request<B>) -> Response<Body> {
        telemetry::on_request();
        let response = match self.respond_from_memory(request) {
            Some(response) => response,
            // Boxed, because otherwise each connection would permanently have the size of its largest possible future.
            None => Box::pin(self.respond_from_disk(request)).await,
        };
        let (method, target) = (request.method(), request.uri());
        tracing::debug!(%method, %target, status = response.status().as_u16(), "request");
        response
    }

    /// Returns the response if it is a success and everything for it is in memory.
    fn respond_from_memory<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let Content::Directory(store) = &self.content else {
            return None;
        };
        // Each `?` leads to `respond_from_disk`, which also answers refused requests.
        check_host(request).ok()?;
        let wanted = Wanted::of(request.method())?;
        let path = RequestPath::parse(request.uri().path()).ok()?;
        let path = self.file_of(path);
        let resource = store.look_up(&path, softclock::now())?;
        let loaded = resource.loaded(choose(&resource, request.headers())?)?;
        let answer = loaded
            .head
            .answer(request.headers(), wanted, SystemTime::now);
        let content = Data::Bytes(loaded.content.clone());
        Some(answer.ok()?.with_content(content))
    }

    async fn respond_from_disk<B>(&self, request: &Request<B>) -> Response<Body> {
        let path = RequestPath::parse(request.uri().path());
        let name = path
            .as_ref()
            .map_or_else(|_| Cow::default(), RequestPath::name_bytes);
        let mut response = match self.answer(request, &path, &name).await {
            Ok(response) => response,
            Err(refusal) => self.completed(&name, self.error_response(refusal).await),
        };
        if request.method() == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        response
    }

    async fn answer<B>(
        &self,
        request: &Request<B>,
        path: &Result<RequestPath, PathError>,
        name: &[u8],
    ) -> Result<Response<Body>, Refusal> {
        check_host(request)?;
        if *request.method() == Method::OPTIONS {
            return Ok(self.completed(name, allowed_methods()));
        }
        let wanted = Wanted::of(request.method()).ok_or(Refusal::MethodNotAllowed)?;
        let path = path.as_ref().map_err(|&error| Refusal::from(error))?;
        match &self.content {
            Content::Bundled => self.answer_bundled(path, request.headers(), wanted),
            Content::Directory(store) => self.answer_file(store, path, request, wanted).await,
        }
    }

    /// Answers with a file, a directory's list, or a redirect. Tries again if the file changes meanwhile, up to
    /// [`ATTEMPTS`] times.
    async fn answer_file<B>(
        &self,
        store: &Store,
        path: &RequestPath,
        request: &Request<B>,
        wanted: Wanted,
    ) -> Result<Response<Body>, Refusal> {
        let file = self.file_of(path.clone());
        for _ in 0..ATTEMPTS {
            let mut handle = match store.find(&file, self.precompressed).await {
                Ok(Some(handle)) => handle,
                // An index file that is a directory counts as missing.
                Ok(None) | Err(Refusal::NotFound) if path.is_directory() => {
                    return self.list(store, path).await;
                }
                Ok(None) => {
                    let location = path.directory_reference(request.uri().query());
                    return Ok(self.completed(path.as_bytes(), redirect(&location)));
                }
                Err(refusal) => return Err(refusal),
            };
            let headers = request.headers();
            match self
                .answer_found(store, &file, &mut handle, headers, wanted)
                .await
            {
                // The next attempt must not find the outdated entry.
                Err(LoadError::Changed) => store.forget(&file),
                Err(LoadError::Failed(error)) => return Err(refusal_of(&error, file.relative())),
                Ok(result) => return result,
            }
        }
        Err(Refusal::Unavailable)
    }

    async fn answer_found(
        &self,
        store: &Store,
        file: &RequestPath,
        handle: &mut Handle,
        request: &HeaderMap,
        wanted: Wanted,
    ) -> Result<Result<Response<Body>, Refusal>, LoadError> {
        let Some(coding) = choose(handle.resource(), request) else {
            return Ok(Err(Refusal::NotAcceptable));
        };
        if let Some(loaded) = handle.resource().loaded(coding) {
            let answer = loaded.head.answer(request, wanted, SystemTime::now);
            let content = Data::Bytes(loaded.content.clone());
            return Ok(answer.map(|answer| answer.with_content(content)));
        }
        let head = self.head_of(file, handle, coding)?;
        let answer = match head.answer(request, wanted, SystemTime::now) {
            // HEAD and 304 need no file to be read.
            Ok(answer) if answer.needs_content() => answer,
            result => return Ok(result.map(|answer| answer.without_content())),
        };
        let content = store.load(file, handle, coding, head).await?;
        Ok(Ok(answer.with_content(content)))
    }

    fn head_of(
        &self,
        file: &RequestPath,
        handle: &Handle,
        coding: Coding,
    ) -> Result<Head, LoadError> {
        let state = handle.state(coding).ok_or(LoadError::Changed)?;
        let mut head = Head::of_file(file.relative(), state, coding, SystemTime::now());
        if handle.resource().has_siblings() {
            head.varies();
        }
        self.complete(file.as_bytes(), StatusCode::OK, head.fields_mut());
        Ok(head)
    }

    fn answer_bundled(
        &self,
        path: &RequestPath,
        request: &HeaderMap,
        wanted: Wanted,
    ) -> Result<Response<Body>, Refusal> {
        let path = if path.is_directory() {
            &path.index(DEFAULT_INDEX)
        } else {
            path
        };
        let file = bundled::find(path.relative()).ok_or(Refusal::NotFound)?;
        let mut head = Head::of_bundled(file);
        self.complete(path.as_bytes(), StatusCode::OK, head.fields_mut());
        let answer = head.answer(request, wanted, SystemTime::now)?;
        Ok(answer.with_content(Data::Bytes(Bytes::from_static(file.content))))
    }

    async fn list(&self, store: &Store, path: &RequestPath) -> Result<Response<Body>, Refusal> {
        if !self.listing {
            return Err(Refusal::NotFound);
        }
        let (root, directory) = (store.root().clone(), path.clone());
        let page = softclock::spawn_blocking(move || listing::page(&root, &directory)).await;
        let page = page.map_err(|error| refusal_of(&error, path.relative()))?;
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        headers.insert(CONTENT_TYPE, html);
        headers.insert(CONTENT_LENGTH, page.len().into());
        *response.body_mut() = Body::Bytes(page.into());
        Ok(self.completed(&path.name_bytes(), response))
    }

    /// Returns the configured error page for the status, or the built-in one.
    async fn error_response(&self, refusal: Refusal) -> Response<Body> {
        let mut response = refusal.into_response();
        let mut pages = self.error_pages.iter();
        let page = pages.find(|page| page.status == response.status());
        if let (Content::Directory(store), Some(page)) = (&self.content, page)
            && let Some(content) = self.error_page(store, &page.path).await
        {
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, media::type_of(page.path.relative()));
            let body = content.into_body();
            headers.insert(
                CONTENT_LENGTH,
                http_body::Body::size_hint(&body).lower().into(),
            );
            *response.body_mut() = body;
        }
        response
    }

    async fn error_page(&self, store: &Store, path: &RequestPath) -> Option<Data> {
        let Ok(Some(mut handle)) = store.find(path, self.precompressed).await else {
            return None;
        };
        if let Some(loaded) = handle.resource().loaded(Coding::Identity) {
            return Some(Data::Bytes(loaded.content.clone()));
        }
        let head = self.head_of(path, &handle, Coding::Identity).ok()?;
        let load = store.load(path, &mut handle, Coding::Identity, head);
        load.await.ok()
    }

    /// Returns the path of the file that answers a request for `path`.
    fn file_of(&self, path: RequestPath) -> RequestPath {
        if path.is_directory() {
            path.index(&self.index)
        } else {
            path
        }
    }
}

impl Wanted {
    fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET => Some(Self::Everything),
            Method::HEAD => Some(Self::Head),
            _ => None,
        }
    }
}

/// Returns the best available coding; without siblings there is no choice, so Accept-Encoding is not parsed.
fn choose(resource: &Resource, request: &HeaderMap) -> Option<Coding> {
    if !resource.has_siblings() {
        return Some(Coding::Identity);
    }
    Preference::of(request).choose(|coding| resource.has(coding))
}

/// Checks Host: HTTP/1.1 requests must have exactly one, and no request may have several (RFC 9112, section 3.2).
pub(crate) fn check_host<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() < Version::HTTP_11 => Ok(()),
        // In HTTP/2 the target may contain the host instead (RFC 9113, section 8.3.1).
        (None, _) if request.version() == Version::HTTP_2 && request.uri().host().is_some() => {
            Ok(())
        }
        (Some(_), None) => Ok(()),
        _ => Err(Refusal::BadHost),
    }
}

fn allowed_methods() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(ALLOWED_METHODS));
    response
}

fn redirect(location: &str) -> Response<Body> {
    match HeaderValue::from_str(location) {
        Ok(location) => {
            let mut response =
                Refusal::page(StatusCode::MOVED_PERMANENTLY, "directories end in a slash.");
            response.headers_mut().insert(LOCATION, location);
            response
        }
        // This cannot occur: names are percent-encoded and hyper has checked the query.
        Err(_) => Refusal::BadPath.into_response(),
    }
}

/// The number of attempts to read a changing file for one request.
const ATTEMPTS: usize = 3;
