//! Halves of a stream: one reads, the other writes. Two halves borrow the stream, or own it
//! together.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(feature = "tokio-driver")]
use tokio::io::{Interest, Ready};

use super::TcpStream;
use crate::halves::{half, halves, reads, writes};

halves!(Rc);
