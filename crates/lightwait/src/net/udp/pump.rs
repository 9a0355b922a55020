//! The task of a UDP socket on its shard: it moves datagrams between the stack and the crossing.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lightwait_core::Error;
use lightwait_core::udp::UdpOptions;

use super::crossing::{Crossing, Delivery, Ends, Order, Owner};
use super::queue::{Queue, cost_of};
use crate::local::UdpSocket;
use crate::net::ledger::Ledger;
use crate::net::pump::with_woken;
use crate::shard::Handle;

/// Opens a socket on the shard's thread, with its task.
pub(super) fn begin(
    shard: &Handle,
    address: SocketAddr,
    options: Option<UdpOptions>,
    ledger: &Arc<Ledger>,
) -> io::Result<Owner> {
    let options = options.unwrap_or_else(|| shard.local.host().default_udp_options());
    let socket = UdpSocket::bind_with_options(shard, address, on_shard(options))?;
    let ends = Ends { local: socket.local_addr()?, peer: None };
    let crossing = Arc::new(Crossing::new(ends, options, ledger));
    let owner = Owner { crossing: crossing.clone() };
    let pump = Pump { crossing: crossing.clone(), socket, pending: Queue::default() };
    crossing.begin(shard.spawn_local(pump).waker().clone());
    Ok(owner)
}

/// The options of the socket on the shard: what came in a row crosses together. The application's
/// end cuts it, unless it wants it joined.
fn on_shard(options: UdpOptions) -> UdpOptions {
    UdpOptions { joined: true, ..options }
}

struct Pump {
    crossing: Arc<Crossing>,
    socket: UdpSocket,
    /// Orders that the stack has not taken.
    pending: Queue<Order>,
}

impl Future for Pump {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let orders = this.crossing.take(&mut this.pending);
        // Taken first: what a send fails with is about that send then.
        let mut delivery = Delivery { error: this.socket.error(), ..Delivery::default() };
        delivery.reported.extend(std::iter::from_fn(|| this.socket.reported()));
        this.send(&mut delivery, context);
        let has_sent = this.pending.is_empty() && !orders.has_more;
        if orders.is_closed && has_sent {
            return Poll::Ready(());
        }
        if !orders.is_closed {
            this.read(orders.has_room, &mut delivery, context);
        }
        let has_room = with_woken(|woken| this.crossing.deliver(delivery, woken));
        if has_room || (orders.has_more && this.pending.is_empty()) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Pump {
    /// Does what was asked for, until there is no room to send.
    fn send(&mut self, delivery: &mut Delivery, context: &Context<'_>) {
        let Pump { crossing: _, socket, pending } = self;
        while let Some((order, len)) = pending.oldest() {
            if let Order::Send(transmit) = order {
                let transmit = *transmit;
                match pending.with_oldest(|bytes| socket.send_now(&transmit, bytes)) {
                    Err(Error::WouldBlock) => return socket.wait_writable(context),
                    Err(error) => delivery.refusal = Some(error),
                    Ok(()) => {}
                }
            }
            delivery.taken += cost_of(len);
            match pending.pop() {
                Some(Order::SetOptions(options)) => {
                    // Fails for no options that the application's end lets pass.
                    let _ = socket.set_options(on_shard(options));
                }
                Some(Order::Call(call)) => call(socket),
                Some(Order::Send(_)) | None => {}
            }
        }
    }

    /// Reads as much as there is room for.
    fn read(&self, mut has_room: bool, delivery: &mut Delivery, context: &Context<'_>) {
        let mut scratch = self.socket.scratch();
        while has_room {
            match self.socket.read(&mut scratch, true) {
                Ok(received) => {
                    has_room = self.crossing.bring(received, &scratch[..received.len]);
                    delivery.has_brought = true;
                }
                Err(Error::WouldBlock) => return self.socket.wait_readable(context),
                Err(error) => delivery.error = Some(error),
            }
        }
        delivery.has_more = true;
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        with_woken(|woken| self.crossing.end(woken));
    }
}
