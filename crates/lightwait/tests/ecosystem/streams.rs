//! Streams of ours in types of the tests', for traits of others.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use lightwait::net::{StackHandle, TcpStream};

/// Reads and writes of a type are those of the stream in it.
macro_rules! delegate {
    ($stream:ident) => {
        impl tokio::io::AsyncRead for $stream {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::pin::Pin::new(&mut self.0).poll_read(context, buffer)
            }
        }

        impl tokio::io::AsyncWrite for $stream {
            fn poll_write(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
                data: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut self.0).poll_write(context, data)
            }

            fn poll_flush(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::pin::Pin::new(&mut self.0).poll_flush(context)
            }

            fn poll_shutdown(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::pin::Pin::new(&mut self.0).poll_shutdown(context)
            }
        }
    };
}

pub(crate) use delegate;

/// Opens connections for the clients of hyper-util and tonic from a stack of ours.
#[derive(Clone)]
pub(crate) struct Connector(pub(crate) StackHandle);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let stack = self.0.clone();
        Box::pin(async move {
            let to = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80));
            Ok(TokioIo::new(Stream(TcpStream::connect_on(&stack, to).await?)))
        })
    }
}

/// A stream of which hyper-util's client knows that it is no proxy.
pub(crate) struct Stream(TcpStream);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

delegate!(Stream);
