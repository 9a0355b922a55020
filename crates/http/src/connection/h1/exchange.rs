//! One request and its response: the answer, the fields that every response has, and what follows
//! when the response is over.

use std::rc::Rc;

use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::access::Access;
use crate::answer::{page, refuse_head, too_many};
use crate::body::{Body, RequestBody};
use crate::client_close;
use crate::connection::access_log::Entry;
use crate::connection::{ConnectionState, Handler, Server};
use crate::head;
use crate::limits::admission::InFlight;

/// One request and its response.
pub(in crate::connection) struct Exchange<H> {
    pub(in crate::connection) state: Rc<ConnectionState<H>>,
    /// The connection accepts no request after this one.
    pub(in crate::connection) last: bool,
}

impl<H: Handler> Exchange<H> {
    pub(in crate::connection) async fn run(self, request: Request<Incoming>) -> Response<Body> {
        let ConnectionState { server, phase, response_state, log, .. } = &*self.state;
        response_state.on_request();
        phase.on_request(server.clock.timer.now(), !request.body().is_end_stream());
        let minor = response_state.take_minor();
        let mut entry = log.as_ref().map(|log| log.begin(Access::of(log.peer, &request, minor)));
        let end = End::of(&request, self.last);
        let in_flight = server.admissions.begin_response();
        let mut response = if let Some(why) = self.parting_fault(&request) {
            let mut response = page(request.headers(), StatusCode::BAD_REQUEST, why);
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            response
        } else if let Some(fault) = head::fault(&request) {
            refuse_head(request.headers(), fault)
        } else if in_flight.is_none() {
            too_many(request.headers())
        } else if let Some(response) = self.redirect(&request) {
            response
        } else {
            let request =
                request.map(|body| RequestBody::new(body, phase.clone(), self.state.is_secured));
            server.handler.clone().respond(request).await
        };
        self.complete_head(&mut response, end);
        if let (Some(log), Some(entry)) = (log, &mut entry) {
            log.on_head(entry, &response);
        }
        let status = response.status();
        response.map(|body| self.follow(body, status, entry, in_flight))
    }

    /// The error in a CLIENT_CLOSE that the server does not obey. Counts it.
    fn parting_fault(&self, request: &Request<Incoming>) -> Option<&'static str> {
        if !client_close::is_method(request.method()) {
            return None;
        }
        self.state.server.admissions.count(|tally| tally.client_closes_refused += 1);
        client_close::fault(request)
    }

    /// The answer to a request that should have come over TLS.
    fn redirect(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        let ConnectionState { server, is_secured, .. } = &*self.state;
        if *is_secured { None } else { server.https.get().redirect(request) }
    }

    /// Fields that every response has, and what they say of the connection.
    fn complete_head(&self, response: &mut Response<Body>, end: End) {
        let headers = response.headers_mut();
        let Server { config, stop, is_pressed, .. } = &*self.state.server;
        self.state.sign(headers);
        if self.last {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let closes =
            end.closes || stop.is_requested() || client_close::has_option(headers, "close");
        let is_pressed = || is_pressed.as_ref().is_some_and(|is_pressed| is_pressed());
        if end.may_ask && (config.ask_client && closes || is_pressed()) {
            let option = HeaderValue::from_static(client_close::OPTION);
            headers.append(header::CONNECTION, option);
            self.state.ask();
        }
        // hyper would add it later, and the record would not know how long the head is.
        if closes && end.is_http_1_1 && !client_close::has_option(headers, "close") {
            headers.append(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// A body that, when over, moves the connection on, and the record.
    fn follow(
        self,
        body: Body,
        status: StatusCode,
        entry: Option<Entry>,
        in_flight: Option<InFlight>,
    ) -> Body {
        let state = self.state;
        let sink = state.sink.clone();
        body.paced(&sink).reporting(move |body_bytes, complete| {
            drop(in_flight);
            let ConnectionState { server, phase, response_state, log, .. } = &*state;
            server.admissions.on_response(status, body_bytes);
            response_state.on_response();
            phase.on_response(server.clock.timer.now());
            if let (Some(log), Some(entry)) = (log, entry) {
                log.on_over(entry, body_bytes, complete);
            }
        })
    }
}

/// Which end may close after an answer.
#[derive(Clone, Copy)]
struct End {
    /// The server would close.
    closes: bool,
    is_http_1_1: bool,
    /// The server may ask the client to close. A client before HTTP/1.1 waits for our FIN, which
    /// may end the answer.
    may_ask: bool,
}

impl End {
    /// The close after the answer to that request; `is_last`: the connection has no other request
    /// after it.
    fn of(request: &Request<Incoming>, is_last: bool) -> End {
        let is_http_1_1 = request.version() == Version::HTTP_11;
        End {
            closes: is_last || client_close::has_option(request.headers(), "close"),
            is_http_1_1,
            may_ask: is_http_1_1 && !client_close::is_method(request.method()),
        }
    }
}
