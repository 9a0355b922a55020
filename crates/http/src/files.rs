//! The file service: turns a request into a response from the files of a source (RFC 9110). It
//! applies preconditions and ranges, lists directories, and keeps a cache.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, request};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use crate::answer::{empty, page, protect};
use crate::body::{Body, Buffers, FileBody, Opening, Piece, ReadTime, RequestBody, Shared};
use crate::config::FilesConfig;
use crate::connection::Handler;
use crate::limits::memory::Memory;
use crate::within::within;
use crate::{Clock, Pending};
use blocks::FileBlocks;
use cache::{Content, FileCache, Found, Known};
use coding::Coding;
use condition::Verdict;
use listing::shelf::Shelf;
use pages::{insert, not_found, redirect, refuse, strip_body};
use path::{PathError, RelativePath, Target, resolve};
use range::Selection;
use source::{FileSource, Kind, Metadata, OpenError, Opened, ReadBuffer};

mod blocks;
mod cache;
mod coded;
mod coding;
mod compress;
mod condition;
mod content_type;
mod flight;
mod listing;
mod multipart;
mod pages;
mod passwords;
pub mod path;
mod policy;
mod range;
pub(crate) mod sites;
pub mod source;

pub use cache::CacheTally;
pub(crate) use passwords::User;
pub use passwords::{PasswordFault, Passwords};
pub use policy::CacheRule;

/// The methods that a file allows.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// The cache's largest part of the memory that responses are charged to.
const CACHE_PART: usize = 4;

/// The largest chunk's part of the memory: those of a few responses must not take all that senders
/// have, or none could be written.
const CHUNK_PART: usize = 64;

/// Serves the files of a source. One for all connections of a shard.
pub struct Files<S: FileSource> {
    source: Rc<S>,
    config: RefCell<Rc<FilesConfig>>,
    clock: Clock,
    buffers: Buffers,
    read_time: Rc<ReadTime>,
    listings: Rc<Shelf>,
    cache: Rc<FileCache<S::Handle>>,
    /// Those that compress a file.
    compressions: Arc<Semaphore>,
    /// Those that check a password.
    checks: Arc<Semaphore>,
}

/// A requested file or directory.
enum Asked<S: FileSource> {
    File(Rc<Known<S::Handle>>),
    Directory(Opened<S::Handle>),
}

impl<S: FileSource> std::fmt::Debug for Files<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Files");
        debug.field("config", &self.config()).field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl<S: FileSource> Handler for Files<S> {
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>> {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let mut response = match self.authorise(&head, body.is_secured()).await {
                Ok(user) => {
                    let mut response = self.answer(&head).await;
                    user.map(|user| response.extensions_mut().insert(user));
                    response
                }
                Err(refused) => self.finish(&head, *refused).await,
            };
            if !self.drain(&head, body).await {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response
        })
    }
}

impl<S: FileSource> Files<S> {
    /// Serves `source` as `config` says.
    pub fn new(source: S, config: FilesConfig, clock: Clock) -> Self {
        let listings = Shelf::new(&config, clock.clone());
        let buffers = Buffers::new(Memory::boundless());
        let read_time = Rc::new(ReadTime::new(clock.measure.clone()));
        let cache = Rc::new(FileCache::new(&config));
        let config = RefCell::new(Rc::new(config));
        let source = Rc::new(source);
        let [compressions, checks] = [compress::AT_A_TIME, passwords::CHECKED_AT_A_TIME]
            .map(|most| Arc::new(Semaphore::new(most)));
        Files { source, config, clock, buffers, read_time, listings, cache, compressions, checks }
    }

    fn config(&self) -> Rc<FilesConfig> {
        self.config.borrow().clone()
    }

    /// Serves from now on with the index, the rules and the pages of `config`; its limits and its
    /// cache stay as they were.
    pub fn set_policy(&self, config: &FilesConfig) {
        let mut new = FilesConfig::clone(&self.config());
        new.index.clone_from(&config.index);
        new.listing = config.listing;
        new.precompressed = config.precompressed;
        new.compress = config.compress;
        new.cache_control.clone_from(&config.cache_control);
        new.fallback.clone_from(&config.fallback);
        new.error_pages.clone_from(&config.error_pages);
        new.origins.clone_from(&config.origins);
        new.passwords.clone_from(&config.passwords);
        if new == *self.config() {
            return;
        }
        self.config.replace(Rc::new(new));
        // Files that are kept know the rules that held when they were found.
        self.cache.forget_all();
    }

    /// The cache's counts, and how much it holds.
    pub fn cache_tally(&self) -> CacheTally {
        self.cache.tally()
    }

    /// Sets how many bytes of files the cache keeps in memory at most, in place of
    /// [`FilesConfig::cache_bytes`], and drops what is more. After 0 only responses in flight hold
    /// memory. The limit is a quarter of a budget: responses may hold half, and would wait for
    /// memory that the cache holds.
    pub fn set_cache_bytes(&self, bytes: usize) {
        self.cache.set_most_bytes(bytes.min(self.buffers.memory.bytes() / CACHE_PART) as u64);
    }

    /// Charges responses and the cache to `memory`. The cache gives memory back where it is scarce,
    /// and holds a quarter of it at most. No chunk is larger than a 64th of it.
    pub fn with_memory(self, memory: Memory) -> Self {
        let mut config = FilesConfig::clone(&self.config());
        config.chunk_bytes = config.chunk_bytes.min(memory.bytes() / CHUNK_PART);
        let buffers = Buffers::new(memory);
        let (cache, give_spare_back) = (Rc::downgrade(&self.cache), buffers.giver());
        buffers.memory.when_scarce(move || {
            if let Some(cache) = cache.upgrade() {
                cache.give_back();
            }
            give_spare_back();
        });
        let cache_bytes = config.cache_bytes;
        let files = Files { config: RefCell::new(Rc::new(config)), buffers, ..self };
        files.set_cache_bytes(cache_bytes);
        files
    }

    /// The response to a request. The request's body plays no part.
    pub(crate) async fn answer(&self, head: &request::Parts) -> Response<Body> {
        let response = self.answer_plainly(head).await;
        self.finish(head, response).await
    }

    /// Adds to a response what the policy says of it.
    async fn finish(&self, head: &request::Parts, mut response: Response<Body>) -> Response<Body> {
        let config = self.config();
        if let Some(page) = config.error_page(response.status()) {
            self.put_page(&mut response, page).await;
        }
        if head.method == Method::HEAD {
            strip_body(&mut response);
        }
        policy::allow_origin(&head.headers, &config, response.headers_mut());
        response
    }

    /// The response without what the policy adds to it.
    async fn answer_plainly(&self, head: &request::Parts) -> Response<Body> {
        let asked = &head.headers;
        if head.method == Method::OPTIONS {
            return policy::options(asked, &self.config(), ALLOW);
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            let detail = "Files can be read here, and nothing else.";
            let mut response = page(asked, StatusCode::METHOD_NOT_ALLOWED, detail);
            response.headers_mut().insert(header::ALLOW, ALLOW);
            response
        } else if head.uri.path().len() > self.config().max_path_bytes {
            page(asked, StatusCode::URI_TOO_LONG, "No file has so long a path.")
        } else {
            match resolve(head.uri.path()) {
                Ok(target) => self.locate(head, target).await,
                Err(PathError::Malformed(why)) => page(asked, StatusCode::BAD_REQUEST, why),
                Err(PathError::NoSuchName) => not_found(asked),
            }
        }
    }

    /// Puts an operator's page in place of ours, if it can be read.
    async fn put_page(&self, response: &mut Response<Body>, path: &RelativePath) {
        let Ok(Asked::File(file)) = self.look_up(path).await else { return };
        *response.body_mut() = self.body(&file, vec![Piece::File(0..file.metadata.len_bytes)]);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, file.content_type.clone());
        // It may have styles, and scripts.
        headers.remove(header::CONTENT_SECURITY_POLICY);
    }

    /// The response for a path: a file, an index, a listing, a redirect or an error.
    async fn locate(&self, head: &request::Parts, target: Target) -> Response<Body> {
        let asked = &head.headers;
        let Target { path, directory } = target;
        if path.is_hidden() && !self.config().hidden {
            return not_found(asked);
        }
        let index = if directory { path.join(self.config().index.as_bytes()) } else { None };
        let kept = index
            .as_ref()
            .and_then(|index| self.usable(index, &self.cache.find(index, self.clock.timer.now())));
        if let Some((index, file)) = index.as_ref().zip(kept) {
            return self.serve_best(head, index, &file).await;
        }
        match (self.look_up(&path).await, directory) {
            (Ok(Asked::File(file)), false) => self.serve_best(head, &path, &file).await,
            // A file is not a directory, whatever the slash says.
            (Ok(Asked::File(_)), true) => not_found(asked),
            (Ok(Asked::Directory(_)), false) => redirect(asked, &path, head.uri.query()),
            (Ok(Asked::Directory(opened)), true) => {
                self.serve_directory(head, &path, index, &opened).await
            }
            (Err(OpenError::NotFound), _) => self.serve_fallback(head, &path).await,
            (Err(error), _) => refuse(asked, &error),
        }
    }

    /// The page that stands for a path which names nothing, or 404.
    async fn serve_fallback(&self, head: &request::Parts, path: &RelativePath) -> Response<Body> {
        let config = self.config();
        if let Some(fallback) = policy::fallback(&config, path, &head.method)
            && let Ok(Asked::File(file)) = self.look_up(fallback).await
        {
            return self.serve_best(head, fallback, &file).await;
        }
        not_found(&head.headers)
    }

    /// The cached file, if it is known to be the file that the path names.
    fn usable(
        &self,
        path: &RelativePath,
        found: &Found<S::Handle>,
    ) -> Option<Rc<Known<S::Handle>>> {
        let Found::Fresh(file) = found else { return None };
        match &file.content {
            Content::Bytes(_) => self.cache.on_hit(),
            // There was no memory for it before, and there is some now.
            Content::Open(_) if self.has_memory_for(file) => return None,
            Content::Open(handle) => {
                // Its bytes are read now, which may differ from those when it was opened.
                let stands = |now| file.metadata == now;
                if !self.source.metadata(handle).is_ok_and(stands) {
                    self.cache.forget(path);
                    return None;
                }
                self.cache.on_open_hit();
            }
        }
        Some(file.clone())
    }

    /// The file or directory that a path names, from the cache or the source.
    async fn look_up(&self, path: &RelativePath) -> Result<Asked<S>, OpenError> {
        let found = self.cache.find(path, self.clock.timer.now());
        if let Some(file) = self.usable(path, &found) {
            return Ok(Asked::File(file));
        }
        let mut opened = self.source.open(path).await;
        if matches!(opened, Err(OpenError::Unavailable(_))) && self.cache.close_all() {
            // Perhaps too many files were open.
            opened = self.source.open(path).await;
        }
        let now = self.clock.timer.now();
        if let Found::Stale(file) = found {
            if opened.as_ref().is_ok_and(|opened| opened.metadata == file.metadata) {
                self.cache.revalidate(&file, now);
                return Ok(Asked::File(file));
            }
            self.cache.forget(path);
        }
        let opened = opened?;
        if opened.metadata.kind == Kind::Directory {
            return Ok(Asked::Directory(opened));
        }
        self.cache.on_miss();
        let found = (opened.metadata, Content::Open(opened.handle));
        let mut file = Known::new(path, found, now, (self.clock.wall)());
        if let Some(bytes) = self.read_short(&file).await {
            file = file.with_bytes(bytes);
        }
        // Behind the last wait: no rule that was replaced meanwhile is kept.
        file.cache_control = self.config().cache_control(path).cloned();
        let file = Rc::new(file);
        self.cache.keep(path, &file);
        Ok(Asked::File(file))
    }

    /// True if the cache should hold the bytes of a file in memory.
    fn has_memory_for(&self, file: &Known<S::Handle>) -> bool {
        let is_kept = file.is_settled && self.cache.takes_bytes(&file.metadata);
        is_kept && !self.buffers.memory.is_scarce()
    }

    /// All bytes of a file for the cache, if the file did not change during the read.
    async fn read_short(&self, file: &Known<S::Handle>) -> Option<Bytes> {
        let (Content::Open(handle), metadata) = (&file.content, &file.metadata) else {
            return None;
        };
        if !self.has_memory_for(file) {
            return None;
        }
        self.read_whole(handle, metadata).await
    }

    /// All bytes of an open file, if it did not change during the read.
    async fn read_whole(&self, handle: &S::Handle, metadata: &Metadata) -> Option<Bytes> {
        let length = usize::try_from(metadata.len_bytes).ok()?;
        // Of exactly that length: it may be kept for long.
        let read = self.source.read_at(handle, 0, ReadBuffer::zeroed(length)).await.ok()?;
        let is_same = |now: Metadata| metadata.has_bytes_of(&now);
        let is_whole = read.len() == length && self.source.metadata(handle).is_ok_and(is_same);
        is_whole.then(|| self.buffers.keep(read))
    }

    /// The index of a directory, or its listing.
    async fn serve_directory(
        &self,
        head: &request::Parts,
        path: &RelativePath,
        index: Option<RelativePath>,
        opened: &Opened<S::Handle>,
    ) -> Response<Body> {
        let asked = &head.headers;
        if let Some(index) = index {
            match self.look_up(&index).await {
                Ok(Asked::File(file)) => return self.serve_best(head, &index, &file).await,
                Ok(Asked::Directory(_)) | Err(OpenError::NotFound) => {}
                Err(error) => return refuse(asked, &error),
            }
        }
        if !self.config().listing {
            return page(asked, StatusCode::FORBIDDEN, "This directory is not listed.");
        }
        let page = match self.listings.page(&self.source, path, opened).await {
            Ok(page) => page,
            Err(why) => return refuse(asked, &OpenError::Unavailable(why.into())),
        };
        let mut response = Response::new(Body::from(page));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        // A listing changes without a validator.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        protect(headers);
        response
    }

    /// The response for a file, after preconditions and ranges (RFC 9110 §13.2.2). It may be what
    /// another file is in some coding.
    fn serve_file(
        &self,
        head: &request::Parts,
        file: &Rc<Known<S::Handle>>,
        coded: Option<(&Known<S::Handle>, Coding)>,
    ) -> Response<Body> {
        let asked = &head.headers;
        let mut response = match condition::evaluate(asked, &file.validators) {
            Verdict::NotModified => empty(StatusCode::NOT_MODIFIED),
            Verdict::Failed => {
                return page(
                    asked,
                    StatusCode::PRECONDITION_FAILED,
                    "The file is another one now.",
                );
            }
            Verdict::Proceed => {
                let is_coded = file.coding.is_some() || coded.is_some();
                let selection = self.select(head, file, is_coded);
                self.serve_selection(asked, file, selection)
            }
        };
        if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            return response;
        }
        let headers = response.headers_mut();
        if let Some(etag) = &file.etag {
            headers.insert(header::ETAG, etag.clone());
        }
        if let Some(modified) = &file.modified {
            headers.insert(header::LAST_MODIFIED, modified.clone());
        }
        let plain = coded.map_or(&**file, |(plain, _)| plain);
        if let Some(rule) = &plain.cache_control {
            headers.insert(header::CACHE_CONTROL, rule.clone());
        }
        if let Some((plain, coding)) = coded
            && headers.contains_key(header::CONTENT_TYPE)
        {
            headers.insert(header::CONTENT_TYPE, plain.content_type.clone());
            headers.insert(header::CONTENT_ENCODING, coding.value());
        }
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        response
    }

    /// The part of a file that a request asks for. `Range` is defined for GET alone (§14.2).
    fn select(&self, head: &request::Parts, file: &Known<S::Handle>, is_coded: bool) -> Selection {
        let now = (self.clock.wall)();
        let range = head.headers.get(header::RANGE).and_then(|value| value.to_str().ok());
        match range {
            Some(range)
                if head.method == Method::GET
                    && condition::range_applies(&head.headers, &file.validators, now) =>
            {
                // `Content-Encoding` would say that the lines between parts are compressed, too.
                let most = if is_coded { 1 } else { self.config().max_ranges };
                range::select(range, file.metadata.len_bytes, most)
            }
            _ => Selection::Whole,
        }
    }

    /// 200, 206 or 416.
    fn serve_selection(
        &self,
        asked: &HeaderMap,
        file: &Rc<Known<S::Handle>>,
        selection: Selection,
    ) -> Response<Body> {
        let kind = file.content_type.clone();
        let length = file.metadata.len_bytes;
        let (status, content_type, content_range, pieces) = match selection {
            Selection::Whole => (StatusCode::OK, kind, None, vec![Piece::File(0..length)]),
            Selection::Unsatisfiable => {
                let detail = "The file does not reach there.";
                let mut response = page(asked, StatusCode::RANGE_NOT_SATISFIABLE, detail);
                insert(response.headers_mut(), header::CONTENT_RANGE, format!("bytes */{length}"));
                return response;
            }
            Selection::Parts(mut parts) if parts.len() == 1 => {
                let part = parts.remove(0);
                let range = multipart::content_range(&part, length);
                (StatusCode::PARTIAL_CONTENT, kind, Some(range), vec![Piece::File(part)])
            }
            Selection::Parts(parts) => {
                let (content_type, pieces) = multipart::pieces(&parts, length, &kind);
                (StatusCode::PARTIAL_CONTENT, content_type, None, pieces)
            }
        };
        let mut response = Response::new(self.body(file, pieces));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(coding) = &file.coding {
            headers.insert(header::CONTENT_ENCODING, coding.clone());
        }
        if let Some(range) = content_range {
            insert(headers, header::CONTENT_RANGE, range);
        }
        response
    }

    /// A body of these pieces.
    fn body(&self, file: &Known<S::Handle>, pieces: Vec<Piece>) -> Body {
        let handle = match &file.content {
            Content::Bytes(bytes) => return in_memory(bytes, &pieces),
            Content::Open(handle) => handle.clone(),
        };
        let opening = Rc::new(Opening {
            source: self.source.clone(),
            handle,
            version: file.metadata.clone(),
            is_settled: file.is_settled,
            changed: self.cache.changed().clone(),
        });
        let (chunk_bytes, buffers) = (self.config().chunk_bytes, self.buffers.clone());
        let blocks = self.blocks(file, &opening);
        let mut body = FileBody::new(opening, pieces, chunk_bytes, buffers, self.read_time.clone());
        if let Some(blocks) = blocks {
            body = body.sharing(blocks);
        }
        Body::file(body)
    }

    /// The blocks of a file that its readers share, if any change of it can be detected.
    fn blocks(&self, file: &Known<S::Handle>, opening: &Rc<Opening<S>>) -> Option<Box<dyn Shared>> {
        let block_bytes = self.config().chunk_bytes;
        if !file.is_settled || !self.cache.takes_blocks(block_bytes) {
            return None;
        }
        Some(Box::new(FileBlocks {
            cache: self.cache.clone(),
            buffers: self.buffers.clone(),
            opening: opening.clone(),
            version: file.metadata.version(),
            block_bytes,
            keeps: file.is_wanted_again(),
        }))
    }

    /// Reads and drops a request's body, so that the connection can be kept. False if the body is
    /// too long or too slow; then the connection must close.
    async fn drain(&self, head: &request::Parts, mut body: RequestBody) -> bool {
        if body.is_end_stream() {
            return true;
        }
        let limit = self.config().max_drain_bytes as u64;
        // The client waits for 100: to read its body would ask for it (RFC 9110 §10.1.1).
        if head.headers.contains_key(header::EXPECT) || body.size_hint().lower() > limit {
            return false;
        }
        let reading = async {
            let mut left = limit;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                match left.checked_sub(bytes) {
                    Some(rest) => left = rest,
                    None => return false,
                }
            }
            true
        };
        let time = self.config().drain_timeout;
        within(&*self.clock.timer, time, reading).await.unwrap_or(false)
    }
}

/// A body of these pieces of a file that is in memory.
fn in_memory(file: &Bytes, pieces: &[Piece]) -> Body {
    let part = |piece: &Piece| match piece {
        Piece::Text(bytes) => bytes.clone(),
        Piece::File(range) => file.slice(range.start as usize..range.end as usize),
    };
    match pieces {
        [one] => Body::kept(part(one)),
        many => Body::from(Bytes::from(many.iter().map(part).collect::<Vec<_>>().concat())),
    }
}

#[cfg(test)]
mod tests;
