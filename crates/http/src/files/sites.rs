//! Several sites on one server, each with files of its own, by the name that a request asks for
//! (RFC 9110 §7.2).

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use http::{HeaderMap, Request, Response, Uri};

use crate::Pending;
use crate::body::{Body, RequestBody};
use crate::config::FilesConfig;
use crate::connection::Handler;
use crate::files::source::FileSource;
use crate::files::{CacheTally, Files};
use crate::head::authority;

/// The sites of a server.
pub struct Sites<S: FileSource> {
    /// For every name that no other site has.
    first: Rc<Files<S>>,
    named: HashMap<String, Rc<Files<S>>>,
}

impl<S: FileSource> fmt::Debug for Sites<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.named.keys().collect();
        f.debug_struct("Sites").field("first", &self.first).field("named", &names).finish()
    }
}

impl<S: FileSource> Sites<S> {
    /// One site, for every name.
    pub fn new(first: Files<S>) -> Sites<S> {
        Sites { first: Rc::new(first), named: HashMap::new() }
    }

    /// Adds the site of that name.
    pub fn with(mut self, name: &str, files: Files<S>) -> Sites<S> {
        self.named.insert(normal(name), Rc::new(files));
        self
    }

    /// The counts of all caches together.
    pub fn cache_tally(&self) -> CacheTally {
        let mut sum = CacheTally::default();
        self.all().for_each(|files| sum.add(&files.cache_tally()));
        sum
    }

    /// Sets how many bytes of files the caches keep at most, each an equal part: see
    /// [`Files::set_cache_bytes`].
    pub fn set_cache_bytes(&self, bytes: usize) {
        let part = bytes / (1 + self.named.len());
        self.all().for_each(|files| files.set_cache_bytes(part));
    }

    /// Sets the rules of all sites: see [`Files::set_policy`].
    pub fn set_policy(&self, config: &FilesConfig) {
        self.all().for_each(|files| files.set_policy(config));
    }

    fn all(&self) -> impl Iterator<Item = &Rc<Files<S>>> {
        std::iter::once(&self.first).chain(self.named.values())
    }

    /// The site that a request asks for: by its target, if that has a host, else by `Host`.
    fn of(&self, target: &Uri, headers: &HeaderMap) -> &Rc<Files<S>> {
        if self.named.is_empty() {
            return &self.first;
        }
        let authority = authority(target, headers);
        let site = authority.and_then(|authority| self.named.get(&normal(authority.host())));
        site.unwrap_or(&self.first)
    }
}

impl<S: FileSource> Handler for Sites<S> {
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>> {
        self.of(request.uri(), request.headers()).clone().respond(request)
    }
}

/// A name as it is compared: case and a root's dot do not matter (RFC 9110 §4.2.3).
fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerConfig;
    use crate::testing::{MemoryFiles, clock, connect, local};

    fn files(content: &[u8]) -> Files<MemoryFiles> {
        Files::new(MemoryFiles::new(&[("a", content)]), FilesConfig::default(), clock())
    }

    #[tokio::test]
    async fn each_name_has_files_of_its_own() {
        local(async {
            let sites = Sites::new(files(b"first"))
                .with("One.test", files(b"one"))
                .with("two.test", files(b"two"));
            let mut client = connect(sites, ServerConfig::default(), 1 << 16);
            for (target, host, body) in [
                ("/a", "one.test", "one"),
                ("/a", "ONE.TEST:8080", "one"),
                ("/a", "two.test.", "two"),
                ("/a", "other.test", "first"),
                ("/a", "10.0.0.1", "first"),
                // The target goes before the field (§7.2).
                ("http://two.test/a", "one.test", "two"),
            ] {
                client.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
                let reply = client.receive(false).await;
                assert_eq!((reply.status, &reply.body[..]), (200, body.as_bytes()), "{host}");
            }
        })
        .await;
    }

    #[test]
    fn caches_and_rules_are_of_all_sites() {
        let sites = Sites::new(files(b"first")).with("one.test", files(b"one"));
        sites.set_policy(&FilesConfig { index: "new".to_owned(), ..FilesConfig::default() });
        let target: Uri = "http://one.test/".parse().unwrap();
        let site = sites.of(&target, &HeaderMap::new());
        assert!(format!("{site:?}").contains("\"new\""), "{site:?}");
        assert_eq!(sites.cache_tally(), CacheTally::default());
    }
}
