//! The sites of a server that may be taken over: once it is, each answer of HTTP/1.1 says that its
//! connection closes, so that the client's next request goes to the process that serves now.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, Version};
use lightwait_http::{Body, Handler, Pending, RequestBody, Sites};

use super::Slow;

/// The sites, which part or do not.
pub(super) struct Parting {
    sites: Rc<Sites<Slow>>,
    parts: Rc<Cell<bool>>,
}

impl Parting {
    pub(super) fn new(sites: Sites<Slow>) -> Parting {
        Parting { sites: Rc::new(sites), parts: Rc::default() }
    }

    /// From now on each answer closes its connection.
    pub(super) fn part(&self) {
        self.parts.set(true);
    }
}

impl Deref for Parting {
    type Target = Sites<Slow>;

    fn deref(&self) -> &Sites<Slow> {
        &self.sites
    }
}

impl Handler for Parting {
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>> {
        let is_http_1 = request.version() < Version::HTTP_2;
        let responding = self.sites.clone().respond(request);
        if !is_http_1 || !self.parts.get() {
            return responding;
        }
        Box::pin(async move {
            let mut response = responding.await;
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            response
        })
    }
}
