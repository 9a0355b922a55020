//! `curl` posts to a handler on our sockets that sends everything back while it arrives.

use std::io;
use std::rc::Rc;
use std::time::SystemTime;

use http_body_util::BodyExt;
use hyper::{Request, Response};
use lightwait::executor::spawn_local;
use lightwait::local::TcpListener;
use lightwait::rt::Timer;
use lightwait::wrap::{Pcap, Recording};
use lightwait_core::Medium;
use lightwait_http::body::RequestBody;
use lightwait_http::{Body, Clock, Handler, Pending, Server, ServerConfig};

use crate::capture;
use crate::host;
use crate::namespace;
use crate::server::{OURS, URLS, reach};
use crate::tools::{self, curl, sha256_of_file, sha256_of_output};

struct Echo;

impl Handler for Echo {
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>> {
        let body = Body::stream(request.into_body().map_err(io::Error::other));
        Box::pin(std::future::ready(Response::new(body)))
    }
}

async fn serve() {
    let clock = Clock {
        timer: Rc::new(Timer),
        measure: Rc::new(lightwait::rt::measure),
        wall: Rc::new(SystemTime::now),
    };
    let server = Rc::new(Server::new(Echo, ServerConfig::default(), clock));
    let listener = TcpListener::bind(("::", 80)).await.unwrap();
    loop {
        let (stream, peer) = listener.accept().await.unwrap();
        let server = server.clone();
        spawn_local(async move { server.serve(stream, peer).await });
    }
}

/// Posts a file of that many MiB to each of our addresses, and compares what comes back.
fn post(directory: &std::path::Path, mebibytes: u64) {
    let file = directory.join("posted");
    tools::write_file(&file, mebibytes);
    let wanted = sha256_of_file(&file);
    for (url, ours) in URLS.iter().zip(OURS) {
        reach(ours, 80);
        let mut curl = curl(&format!("{url}/"));
        curl.args(["--header", "Expect:", "--data-binary"]);
        curl.arg(format!("@{}", file.display()));
        assert_eq!(sha256_of_output(&mut curl), wanted, "{url}");
    }
}

#[test]
fn what_curl_posts_comes_back_whole() {
    namespace::inside("upload::what_curl_posts_comes_back_whole", &["curl"], || {
        let directory = tools::directory();
        host::run_beside(host::open_device(), serve(), || post(directory.path(), 256));
    });
}

#[test]
fn a_capture_of_a_post_has_no_fault() {
    namespace::inside("upload::a_capture_of_a_post_has_no_fault", &["curl", "tshark"], || {
        let directory = tools::directory();
        let path = directory.path().join("capture.pcapng");
        let recording = Recording::create(&path, Medium::Ethernet, &["test"]).unwrap();
        let device = Pcap::new(host::open_device(), &recording, 0);
        drop(recording);
        host::run_beside(Box::new(device), serve(), || post(directory.path(), 16));
        let found = capture::check(&path, capture::Link::Good);
        // To us and back, from both addresses.
        assert!(found.text_bytes >= 64 << 20, "{found:?}");
        assert!(found.largest_packet > 16_000, "{found:?}");
    });
}
