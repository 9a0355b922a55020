//! Clients of a shard on the kernel's TCP: a thread, which takes one step of each connection
//! in turn. It never waits for an answer unless all connections have one coming.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::super::sources::SERVER;
use super::super::{PATIENCE, REQUEST_LEN, Workload};

/// A place for a connection.
enum Place {
    Free,
    /// Its SYN has been sent.
    Opening(TcpStream),
    /// Its request has been sent.
    Asked(TcpStream),
}

/// Steps from a free place to an answer.
const STEPS_TO_ANSWER: usize = 3;

/// Some of the clients of a shard.
pub(super) struct Client<I> {
    workload: Workload,
    /// The ends to open connections from.
    ends: I,
    places: Vec<Place>,
    buffer: Vec<u8>,
    asked: u64,
    answered: u64,
}

impl<I: Iterator<Item = SocketAddrV4>> Client<I> {
    /// A client with so many connections, at least one, which are not open yet.
    pub(super) fn new(workload: Workload, connections: usize, ends: I) -> Self {
        let places = (0..connections).map(|_| Place::Free).collect();
        let buffer = vec![0; workload.answer_len()];
        Client { workload, ends, places, buffer, asked: 0, answered: 0 }
    }

    /// Gets an answer on each connection. The first one comes alone: few
    /// frames may wait until the hosts know each other's hardware addresses.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let mut first = Place::Free;
        for _ in 0..STEPS_TO_ANSWER {
            first = self.step(first)?;
        }
        self.places[0] = first;
        (0..STEPS_TO_ANSWER).try_for_each(|_| self.step_all())
    }

    /// Asks on all connections until it is over. Returns how many requests were sent and how many
    /// were answered.
    pub(super) fn go_on(mut self, is_over: impl Fn() -> bool) -> io::Result<(u64, u64)> {
        while !is_over() {
            self.step_all()?;
        }
        for place in std::mem::take(&mut self.places) {
            if let Place::Asked(stream) = place {
                self.receive(&stream)?;
            }
        }
        Ok((self.asked, self.answered))
    }

    fn step_all(&mut self) -> io::Result<()> {
        for index in 0..self.places.len() {
            let place = std::mem::replace(&mut self.places[index], Place::Free);
            self.places[index] = self.step(place)?;
        }
        Ok(())
    }

    fn step(&mut self, place: Place) -> io::Result<Place> {
        match place {
            Place::Free => Ok(Place::Opening(self.open()?)),
            Place::Opening(stream) => self.send(stream),
            Place::Asked(stream) => {
                self.receive(&stream)?;
                if self.workload.closes() {
                    return self.step(Place::Free);
                }
                self.send(stream)
            }
        }
    }

    /// Begins to open a connection from the next end that is free.
    fn open(&mut self) -> io::Result<TcpStream> {
        for end in &mut self.ends {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            match bind(&socket, &end) {
                // An earlier measurement has left a connection there.
                Err(Errno::ADDRINUSE) => continue,
                bound => bound?,
            }
            match connect(&socket, &SERVER) {
                Err(Errno::INPROGRESS) => (),
                connected => connected?,
            }
            let stream = TcpStream::from(socket);
            // The first write waits until the connection is open.
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            return Ok(stream);
        }
        Err(io::Error::other("no address is left to open a connection from"))
    }

    fn send(&mut self, stream: TcpStream) -> io::Result<Place> {
        self.asked += 1;
        (&stream).write_all(&[b'?'; REQUEST_LEN])?;
        Ok(Place::Asked(stream))
    }

    /// Receives the answer, and the server's FIN if it closes.
    fn receive(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        stream.read_exact(&mut self.buffer)?;
        if self.workload.closes() && stream.read(&mut [0])? > 0 {
            return Err(io::Error::other("an answer was too long"));
        }
        self.answered += 1;
        Ok(())
    }
}
