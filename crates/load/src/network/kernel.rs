//! The kernel's stack as a load's network, under a tokio `current_thread` runtime.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use super::Network;

/// The kernel's sockets.
#[derive(Clone, Debug)]
pub struct Kernel {
    begin: Instant,
    is_nodelay: bool,
    /// A timer that is finer than tokio's, which count in milliseconds.
    timer: Rc<AsyncFd<OwnedFd>>,
}

impl Kernel {
    /// The kernel's stack; times count from now. With `is_nodelay`, small segments are sent at
    /// once. Connections for one request do not need that.
    ///
    /// # Errors
    /// If there is no file descriptor left.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O enabled.
    pub fn new(is_nodelay: bool) -> io::Result<Kernel> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "what is deprecated is a descriptor that can be exchanged; this one is not"
        )]
        let timer = Rc::new(AsyncFd::with_interest(timer, Interest::READABLE)?);
        Ok(Kernel { begin: Instant::now(), is_nodelay, timer })
    }
}

impl Network for Kernel {
    type Stream = TcpStream;

    async fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Without this the kernel refuses the port while any tuple with it is in TIME-WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(from)?;
        if self.is_nodelay {
            socket.set_nodelay(true)?;
        }
        socket.connect(to).await
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn sleep_until(&self, when: Duration) -> impl Future<Output = ()> + 'static {
        tokio::time::sleep_until(self.begin + when)
    }

    async fn alarm(&self, when: Duration) -> io::Result<()> {
        let wait = when.saturating_sub(self.now());
        if wait.is_zero() {
            return Ok(());
        }
        let it_value = Timespec::try_from(wait).map_err(io::Error::other)?;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        // The number of expirations.
        let mut count = [0; 8];
        loop {
            let mut ready = self.timer.readable().await?;
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut count)?));
            if let Ok(result) = read {
                return result.map(|_| ());
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        tokio::task::spawn_local(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_is_never_early_and_much_finer_than_a_millisecond() {
        let kernel = Kernel::new(false).unwrap();
        // In one of the rounds the machine must have no other work.
        let mut medians = Vec::new();
        for _ in 0..10 {
            let mut late = Vec::new();
            for _ in 0..50 {
                let when = kernel.now() + Duration::from_micros(1500);
                kernel.alarm(when).await.unwrap();
                late.push(kernel.now().checked_sub(when).expect("not early"));
            }
            late.sort();
            medians.push(late[25]);
        }
        let least = medians.iter().min().expect("ten rounds");
        assert!(*least < Duration::from_micros(400), "{medians:?}");
    }

    #[tokio::test]
    async fn a_connection_uses_the_address_and_port_asked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kernel = Kernel::new(true).unwrap();
        let from = "127.1.2.3:50123".parse().unwrap();
        let stream = kernel.connect(from, listener.local_addr().unwrap()).await.unwrap();
        assert!(stream.nodelay().unwrap());
        assert_eq!(listener.accept().await.unwrap().1, from);
    }
}
