//! gRPC by tonic: a service written by hand, since the compiler of its descriptions is no Rust.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream, StreamExt};
use hyper::http::{self, uri::PathAndQuery};
use lightwait::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::client::Grpc as Client;
use tonic::server::{Grpc as Server, NamedService};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::streams::Connector;
use crate::world::{run, stacks};

type Future<T> = Pin<Box<dyn std::future::Future<Output = T> + Send>>;

#[derive(Clone, PartialEq, prost::Message)]
struct Numbers {
    #[prost(uint64, repeated, tag = "1")]
    numbers: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sum {
    #[prost(uint64, tag = "1")]
    sum: u64,
}

/// Adds up numbers, at once or one by one.
#[derive(Clone)]
struct Adder;

impl NamedService for Adder {
    const NAME: &'static str = "test.Adder";
}

impl tower_service::Service<http::Request<Body>> for Adder {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Future<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut server = Server::new(ProstCodec::<Sum, Numbers>::default());
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/test.Adder/Add" => server.unary(Add, request).await,
                "/test.Adder/Follow" => server.server_streaming(Follow, request).await,
                _ => Status::unimplemented("no such call").into_http(),
            })
        })
    }
}

/// One call: the sum.
struct Add;

impl tower_service::Service<Request<Numbers>> for Add {
    type Response = Response<Sum>;
    type Error = Status;
    type Future = Ready<Result<Response<Sum>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Numbers>) -> Self::Future {
        let sum = request.get_ref().numbers.iter().try_fold(0_u64, |sum, it| sum.checked_add(*it));
        ready(sum.map(|sum| Response::new(Sum { sum })).ok_or(Status::out_of_range("too much")))
    }
}

/// Another: the sum after each number.
struct Follow;

impl tower_service::Service<Request<Numbers>> for Follow {
    type Response = Response<BoxStream<'static, Result<Sum, Status>>>;
    type Error = Status;
    type Future = Ready<Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Numbers>) -> Self::Future {
        let mut sum = 0;
        let sums = request.into_inner().numbers.into_iter().map(move |number| {
            sum += number;
            Ok(Sum { sum })
        });
        ready(Ok(Response::new(stream::iter(sums).boxed())))
    }
}

/// A stream of which tonic's server asks who its peer is.
struct Accepted(TcpStream);

impl Connected for Accepted {
    type ConnectInfo = std::net::SocketAddr;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.0.peer_addr().expect("it is connected")
    }
}

crate::streams::delegate!(Accepted);

async fn serve(listener: TcpListener) {
    let incoming = stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| Accepted(stream));
        Some((accepted, listener))
    });
    let server = tonic::transport::Server::builder().add_service(Adder);
    server.serve_with_incoming(incoming).await.unwrap();
}

/// Calls, as generated code does.
async fn ask(channel: &Channel, path: &'static str, numbers: Vec<u64>) -> Result<u64, Status> {
    let mut client = Client::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::<Numbers, Sum>::default());
    let answer = client.unary(Request::new(Numbers { numbers }), path, codec).await?;
    Ok(answer.into_inner().sum)
}

#[test]
fn tonics_client_and_server_call_and_stream() {
    run(async {
        let (server, client) = stacks();
        let at = (server.address(), 50051);
        tokio::spawn(serve(TcpListener::bind_on(&server, at).await.unwrap()));
        let endpoint = Endpoint::try_from(format!("http://{}:50051", server.address())).unwrap();
        let channel = endpoint.connect_with_connector_lazy(Connector(client.clone()));
        assert_eq!(ask(&channel, "/test.Adder/Add", vec![1, 2, 3]).await.unwrap(), 6);
        // A megabyte in one message, and many calls at once on the same connection.
        let many: Vec<u64> = (0..400_000).collect();
        let sum = many.iter().sum::<u64>();
        assert_eq!(ask(&channel, "/test.Adder/Add", many.clone()).await.unwrap(), sum);
        let calls = (0..50).map(|number| {
            let channel = channel.clone();
            tokio::spawn(async move { ask(&channel, "/test.Adder/Add", vec![number, 1]).await })
        });
        for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), number as u64 + 1);
        }
        let too_much = ask(&channel, "/test.Adder/Add", vec![u64::MAX, 1]).await.unwrap_err();
        assert_eq!((too_much.code(), too_much.message()), (Code::OutOfRange, "too much"));
        let unknown = ask(&channel, "/test.Adder/Subtract", vec![]).await.unwrap_err();
        assert_eq!(unknown.code(), Code::Unimplemented);

        let mut following = Client::new(channel);
        following.ready().await.unwrap();
        let path = PathAndQuery::from_static("/test.Adder/Follow");
        let codec = ProstCodec::<Numbers, Sum>::default();
        let request = Request::new(Numbers { numbers: many[..50_000].to_vec() });
        let answer = following.server_streaming(request, path, codec).await.unwrap();
        let mut sums = answer.into_inner();
        let (mut count, mut sum) = (0, 0);
        while let Some(told) = sums.message().await.unwrap() {
            sum += count;
            assert_eq!(told.sum, sum);
            count += 1;
        }
        assert_eq!(count, 50_000);
        let opened = client.with_host(|host| host.counters().active_opens).await.unwrap();
        assert_eq!(opened, 1);
    });
}
