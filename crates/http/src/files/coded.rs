//! Which representation of a file a client gets: the plain one, a compressed file beside it, or one
//! that is compressed now.

use std::rc::Rc;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, request};

use super::cache::{Content, Known};
use super::coding::{self, Coding};
use super::path::RelativePath;
use super::source::{FileSource, GRANULE, Metadata};
use super::{Asked, Files, compress};
use crate::body::Body;
use crate::config::FilesConfig;

impl<S: FileSource> Files<S> {
    /// The response for the file at `path`, or for what it is in a coding that the client likes:
    /// one beside it, or else one that is made of it.
    pub(super) async fn serve_best(
        &self,
        head: &request::Parts,
        path: &RelativePath,
        file: &Rc<Known<S::Handle>>,
    ) -> Response<Body> {
        let FilesConfig { precompressed, compress, .. } = *self.config();
        let may_compress = compress && compress::pays(&file.content_type, file.metadata.len_bytes);
        if !(precompressed || may_compress) || file.coding.is_some() {
            return self.serve_file(head, file, None);
        }
        let mut response = match self.best(head, path, file, precompressed).await {
            Some((sibling, coding)) => self.serve_file(head, &sibling, Some((file, coding))),
            // The bytes of a range are those of a file that stays as it is.
            None if !may_compress || head.headers.contains_key(header::RANGE) => {
                self.serve_file(head, file, None)
            }
            None => {
                let made = self.compressed(&head.headers, path, file).await;
                self.serve_file(head, made.as_ref().unwrap_or(file), None)
            }
        };
        // Who keeps it must know that another client may get another (RFC 9110 §12.5.5).
        response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
        response
    }

    /// The compressed file beside that at `path` that the client likes best, if there are such.
    async fn best(
        &self,
        head: &request::Parts,
        path: &RelativePath,
        file: &Rc<Known<S::Handle>>,
        is_looked_for: bool,
    ) -> Option<(Rc<Known<S::Handle>>, Coding)> {
        for coding in coding::accepted(&head.headers).filter(|_| is_looked_for) {
            if let Some(sibling) = self.sibling(path, file, coding).await {
                return Some((sibling, coding));
            }
        }
        None
    }

    /// What the file is in the coding that the client likes best of those that are made.
    async fn compressed(
        &self,
        asked: &HeaderMap,
        path: &RelativePath,
        file: &Rc<Known<S::Handle>>,
    ) -> Option<Rc<Known<S::Handle>>> {
        let coding = coding::accepted(asked).find(|coding| compress::is_made(*coding))?;
        if file.is_dense() || !file.is_settled || !self.cache.keeps_bytes() {
            return None;
        }
        if let Some(coded) = self.cache.coded(path, file, coding) {
            self.cache.on_hit();
            return Some(coded);
        }
        if self.buffers.memory.is_scarce() {
            return None;
        }
        let permit = self.compressions.clone().try_acquire_owned().ok()?;
        let length = usize::try_from(file.metadata.len_bytes).ok()?;
        // The plain bytes and the coded ones, until the latter are all that is left.
        let charge = self.buffers.memory.charge(2 * length);
        let plain = match &file.content {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Open(handle) => self.read_whole(handle, &file.metadata).await?,
        };
        // A client that goes away leaves the work, which counts until it is done.
        let work = move || (compress::compress(&plain, coding), permit, charge);
        let (coded, _permit, _charge) = self.source.run(work).await?;
        let Some(coded) = coded else {
            file.note_dense();
            return None;
        };
        let coded = Rc::new(file.coded(self.buffers.keep(coded.into()), coding));
        self.cache.keep_coded(path, coding, &coded);
        Some(coded)
    }

    /// The compressed file beside that at `path`.
    async fn sibling(
        &self,
        path: &RelativePath,
        file: &Known<S::Handle>,
        coding: Coding,
    ) -> Option<Rc<Known<S::Handle>>> {
        if file.lacks(coding) {
            return None;
        }
        match self.look_up(&path.followed_by(coding.suffix())?).await {
            Ok(Asked::File(sibling)) if !is_stale(&sibling.metadata, &file.metadata) => {
                Some(sibling)
            }
            Ok(_) | Err(_) => {
                file.note_lack(coding);
                None
            }
        }
    }
}

/// True if a compressed file is older than the plain one: that has changed since.
fn is_stale(coded: &Metadata, plain: &Metadata) -> bool {
    // Copies lose what is finer.
    coded.modified.zip(plain.modified).is_some_and(|(coded, plain)| coded + GRANULE < plain)
}

#[cfg(test)]
mod tests;
