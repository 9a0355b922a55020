//! Implements tokio's `AsyncRead` and `AsyncWrite` for a stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::TcpStream;
use crate::io_traits::io_traits;

io_traits!();
