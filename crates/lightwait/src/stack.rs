//! Sets up a stack in one call: a device, an address, a secret from the system's random source, and
//! a hardware address that no other stack has.
//!
//! [`Config`] has the other settings ([`Stack::on`]); [`shard`](crate::shard) and [`driver`] have
//! the parts of a stack.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::{fmt, io};

use lightwait_core::address::Cidr;
use lightwait_core::{Capabilities, Config, Medium};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::device::{Device, LARGEST_PACKET, ThreadedMemory};
#[cfg(target_os = "linux")]
use crate::device::{Tap, TapConfig, Tun};
use crate::driver::{self, SPIN, Stop};
use crate::error::io_error;
use crate::executor::JoinHandle;
use crate::net::StackHandle;
use crate::shard::{Handle, Shard};

/// MTU of the wire in memory, and frames that it holds each way.
const WIRE_MTU: u16 = 1500;
const WIRE_FRAMES: usize = 256;

/// One stack, not yet running. [`run`] drives it on this thread, with sockets of
/// [`local`](crate::local); [`Stack::spawn`] on a thread of its own, with sockets of
/// [`net`](crate::net).
pub struct Stack {
    address: IpAddr,
    /// What the shard is made of, until somebody wants it on this thread.
    parts: Cell<Option<Parts>>,
    shard: OnceCell<Shard>,
}

struct Parts {
    config: Config,
    device: Box<dyn Device + Send>,
}

impl Stack {
    /// A stack on the TAP of that name, which is made if there is none, with our address and its
    /// prefix, such as `10.9.0.2/24`. The kernel's end gets the subnet's first address that is not
    /// ours. Making a TAP needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// If `address` is invalid, its subnet has no other address, or the TAP cannot be opened. The
    /// text says which command helps.
    #[cfg(target_os = "linux")]
    pub fn tap(name: &str, address: &str) -> io::Result<Stack> {
        Stack::made(name, address, |config| Ok(Box::new(Tap::open(config)?)))
    }

    /// A stack on the TUN of that name, as [`Stack::tap`] is on a TAP.
    ///
    /// # Errors
    /// Those of [`Stack::tap`].
    #[cfg(target_os = "linux")]
    pub fn tun(name: &str, address: &str) -> io::Result<Stack> {
        Stack::made(name, address, |config| Ok(Box::new(Tun::open(config)?)))
    }

    /// A stack on an interface that `open` makes.
    #[cfg(target_os = "linux")]
    fn made(
        name: &str,
        address: &str,
        open: impl FnOnce(&TapConfig) -> io::Result<Box<dyn Device + Send>>,
    ) -> io::Result<Stack> {
        let ours = parse(address)?;
        let mut config = TapConfig::new(name);
        config.host_addresses = vec![neighbour(ours)?];
        Stack::on(open(&config)?, ours, |_| ())
    }

    /// Two stacks at the ends of a wire in memory: 10.0.0.1 and 10.0.0.2.
    ///
    /// # Errors
    /// If the system has no randomness, or no file descriptor left.
    pub fn memory() -> io::Result<(Stack, Stack)> {
        let plain = Capabilities::plain(Medium::Ip, WIRE_MTU);
        let wire = Capabilities {
            checksum: true,
            segmentation: LARGEST_PACKET,
            datagrams: LARGEST_PACKET,
            ..plain
        };
        let (one, other) = ThreadedMemory::pair(wire, WIRE_FRAMES)?;
        let on = |device, address| Stack::on(Box::new(device), parse(address)?, |_| ());
        Ok((on(one, "10.0.0.1/24")?, on(other, "10.0.0.2/24")?))
    }

    /// A stack on any device. Every knob has its default unless `configure` sets it; the secret and
    /// the hardware address are random.
    ///
    /// # Errors
    /// If the configuration is invalid, or the system has no randomness.
    pub fn on(
        device: Box<dyn Device + Send>,
        address: Cidr,
        configure: impl FnOnce(&mut Config),
    ) -> io::Result<Stack> {
        let mut config = Config::new(device.capabilities(), address, secret()?);
        configure(&mut config);
        let address = config.addresses.first().map_or(address, |first| *first).address();
        let config = Config { device: device.capabilities(), ..config };
        config.check().map_err(io_error)?;
        let parts = Cell::new(Some(Parts { config, device }));
        Ok(Stack { address, parts, shard: OnceCell::new() })
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Starts the stack on a thread of its own, and returns the handle for its sockets, which are
    /// [`net`](crate::net)'s.
    ///
    /// # Errors
    /// `InvalidInput` if the stack has a [`Handle`] on this thread already, and may have sockets
    /// and tasks here. If the system starts no thread.
    pub fn spawn(self) -> io::Result<StackHandle> {
        let Some(Parts { config, device }) = self.parts.take() else {
            let text = "the stack is used on this thread already (`handle`, `spawn_local`)";
            return Err(invalid(text.to_owned()));
        };
        crate::net::spawn(config, device, self.address)
    }

    /// The handle that sockets of this thread are bound to and tasks are spawned on.
    pub fn handle(&self) -> Handle {
        self.shard().handle()
    }

    fn shard(&self) -> &Shard {
        self.shard.get_or_init(|| {
            let Parts { config, device } = self.parts.take().expect("there until the shard is");
            let shard = Shard::new(config, device).expect("a configuration that was checked");
            shard.handle().contain_panics(true);
            shard
        })
    }

    /// Runs a future as a task of this stack, once it is driven.
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        self.handle().spawn_local(future)
    }

    /// Returns the shard, for a driver.
    pub fn into_shard(self) -> Shard {
        self.shard();
        self.shard.into_inner().expect("just made")
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Drives the stacks on this thread until `main` ends, which is a task of the first stack. Returns
/// the output of `main`. There is no other runtime in it: [`rt`](crate::rt) has `sleep`, `timeout`
/// and `interval`, and tokio's timers would panic.
///
/// A panic in any other task ends that task, and its handle returns it
/// ([`JoinError::is_panic`](crate::executor::JoinError::is_panic)). If it is to end the program,
/// call [`Handle::contain_panics`] with `false`.
///
/// # Errors
/// If a device fails, or the kernel has no file descriptor left.
///
/// # Panics
/// If there is no stack. A panic of `main` goes on here.
pub fn run<F>(stacks: impl IntoIterator<Item = Stack>, main: F) -> io::Result<F::Output>
where
    F: Future + 'static,
{
    let mut shards: Vec<Shard> = stacks.into_iter().map(Stack::into_shard).collect();
    let output = run_main(&mut shards, &Stop::new(), main)?;
    Ok(output.expect("only the task's end sets the switch"))
}

/// Drives the shards on this thread until `main`, a task of the first, has ended, and returns its
/// output; `None` if something else has set `stop` before.
///
/// # Panics
/// If there is no shard. A panic of `main` goes on here.
pub(crate) fn run_main<F>(
    shards: &mut [Shard],
    stop: &Stop,
    main: F,
) -> io::Result<Option<F::Output>>
where
    F: Future + 'static,
{
    let (end, output) = (StopAtEnd(stop.clone()), Rc::new(RefCell::new(None)));
    let returned = output.clone();
    let on = shards.first().expect("a stack to run on").handle();
    let mut main = on.spawn_local(async move {
        let _end = end;
        *returned.borrow_mut() = Some(main.await);
    });
    driver::run(shards, stop, SPIN)?;
    if let Some(output) = output.take() {
        return Ok(Some(output));
    }
    // If it has ended, one more look returns how.
    let ended = Pin::new(&mut main).poll(&mut Context::from_waker(Waker::noop()));
    match ended {
        Poll::Ready(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
        _ => Ok(None),
    }
}

/// Sets the switch when dropped: a panic of `main` ends the run, too.
struct StopAtEnd(Stop);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// A secret for [`Config::new`], from the system's random source.
///
/// # Errors
/// If the system has no randomness.
pub fn secret() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

fn parse(address: &str) -> io::Result<Cidr> {
    address.parse().map_err(|_| {
        invalid(format!("`{address}` is not an address with its prefix, such as 10.9.0.2/24"))
    })
}

/// The first host address of the subnet other than ours.
fn neighbour(ours: Cidr) -> io::Result<Cidr> {
    // Not the subnet itself and, in the last place, not the broadcast address.
    let last = if ours.size() > 2 { ours.size() - 2 } else { ours.size() - 1 };
    let first = if ours.size() > 2 { 1 } else { 0 };
    (first..=last.min(first + 1))
        .map(|index| ours.nth(index))
        .find(|address| *address != ours.address())
        .and_then(|address| Cidr::new(address, ours.prefix_len()))
        .ok_or_else(|| invalid(format!("{ours}: no address is left for the kernel's end")))
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{TcpListener, TcpStream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn two_stacks_have_secrets_and_hardware_addresses_of_their_own() {
        let ethernet = Capabilities::plain(Medium::Ethernet, 1500);
        let (one, other) = ThreadedMemory::pair(ethernet, 4).unwrap();
        let address: Cidr = "10.9.0.2/24".parse().unwrap();
        let of = |device| {
            let stack = Stack::on(Box::new(device), address, |_| ()).unwrap();
            stack.handle().with_host(|host| (host.config().hardware, host.config().secret))
        };
        let (one, other) = (of(one), of(other));
        assert!(one.0 != other.0 && one.1 != other.1);
        assert_eq!((one.0[0] & 3, other.0[0] & 3), (2, 2), "local, and of one station");
    }

    #[test]
    fn stacks_run_until_their_task_ends_and_return_its_output() {
        let (server, client) = Stack::memory().unwrap();
        let at = (server.address(), 7);
        let listener = TcpListener::bind_on(&server.handle(), at).unwrap();
        server.spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"hello").await.unwrap();
        });
        let heard = run([client, server], async move {
            let mut heard = String::new();
            TcpStream::connect(at).await?.read_to_string(&mut heard).await?;
            Ok::<_, io::Error>(heard)
        });
        assert_eq!(heard.unwrap().unwrap(), "hello");
    }

    #[test]
    fn a_panic_in_a_task_ends_that_task_and_goes_to_its_handle() {
        let (server, client) = Stack::memory().unwrap();
        let at = (server.address(), 7);
        let listener = TcpListener::bind_on(&server.handle(), at).unwrap();
        server.spawn_local(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                crate::executor::spawn_local(async move {
                    let asked = stream.read_u8().await.unwrap();
                    assert_ne!(asked, 13, "a bug");
                    stream.write_u8(asked).await.unwrap();
                });
            }
        });
        let heard = run([client, server], async move {
            let mut heard = Vec::new();
            for asked in [1, 13, 3] {
                let mut stream = TcpStream::connect(at).await.unwrap();
                stream.write_u8(asked).await.unwrap();
                heard.push(stream.read_u8().await.ok());
            }
            let ended: Result<(), crate::executor::JoinError> =
                crate::executor::spawn_local(async { panic!("on purpose") }).await;
            let error = ended.unwrap_err();
            assert!(error.is_panic() && !error.is_cancelled());
            (heard, error.to_string(), error.into_panic().downcast::<&str>().ok())
        });
        let (heard, text, panic) = heard.unwrap();
        assert_eq!(heard, [Some(1), None, Some(3)], "the others are served");
        assert_eq!((&*text, *panic.unwrap()), ("the task panicked: on purpose", "on purpose"));
    }

    #[test]
    fn a_panic_of_main_or_one_that_is_not_contained_ends_the_run() {
        let panics = |contains: bool, in_main: bool| {
            let (server, _) = Stack::memory().unwrap();
            server.handle().contain_panics(contains);
            let run = std::panic::AssertUnwindSafe(|| {
                run([server], async move {
                    let task = crate::executor::spawn_local(async { panic!("a task's") });
                    let ended: Result<(), _> = task.await;
                    assert!(!in_main && ended.is_err(), "main's");
                })
            });
            let text = std::panic::catch_unwind(run).err();
            text.map(|text| (*text.downcast::<&str>().expect("a text")).to_owned())
        };
        assert_eq!(panics(true, false), None);
        assert_eq!(panics(true, true).as_deref(), Some("main's"));
        assert_eq!(panics(false, false).as_deref(), Some("a task's"));
    }

    #[test]
    fn the_kernels_end_gets_another_address_of_the_subnet() {
        let of = |ours: &str| neighbour(ours.parse().unwrap()).map(|cidr| cidr.to_string());
        assert_eq!(of("10.9.0.2/24").unwrap(), "10.9.0.1/24");
        assert_eq!(of("10.9.0.1/24").unwrap(), "10.9.0.2/24");
        assert_eq!(of("10.9.0.1/30").unwrap(), "10.9.0.2/30");
        assert_eq!(of("10.9.0.1/31").unwrap(), "10.9.0.0/31");
        assert_eq!(of("fd00::1/64").unwrap(), "fd00::2/64");
        for ours in ["10.9.0.1/32", "fd00::1/128"] {
            assert_eq!(of(ours).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{ours}");
        }
        assert!(parse("10.9.0.2").unwrap_err().to_string().contains("10.9.0.2/24"));
    }
}
