//! DNS by hickory over our UDP sockets, against hickory over the kernel's: as client and as server.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket as KernelSocket};
use std::thread;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use lightwait::device::AfPacket;
use lightwait::executor::spawn_local;
use lightwait::local::UdpSocket;
use lightwait::rt;
use lightwait::shard::Handle;

use crate::kernel_udp::{PAIRS, any, at, exchange};
use crate::namespace;

/// Where our server listens.
const PORT: u16 = 53;

/// The longest message of EDNS that servers send (RFC 6891 §6.2.5).
const LONGEST: usize = 4096;

fn question(id: u16) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    let name = Name::from_ascii("host.test.").unwrap();
    message.add_query(Query::query(name, RecordType::A));
    message.to_vec().unwrap()
}

/// As many addresses as `id` says.
fn answer(question: &[u8]) -> Vec<u8> {
    let question = Message::from_vec(question).unwrap();
    let mut answer = Message::response(question.id, OpCode::Query);
    for query in &question.queries {
        answer.add_query(query.clone());
        for last in 0..question.id as u8 {
            let address = RData::A(A(Ipv4Addr::new(192, 0, 2, last)));
            answer.add_answer(Record::from_rdata(query.name().clone(), 60, address));
        }
    }
    answer.to_vec().unwrap()
}

fn check(answer: &[u8], id: u16) {
    let answer = Message::from_vec(answer).unwrap();
    assert_eq!((answer.id, answer.response_code), (id, ResponseCode::NoError));
    assert_eq!(answer.answers.len(), usize::from(id));
    let last = answer.answers.last().map(|record| record.data.clone());
    assert_eq!(last, Some(RData::A(A(Ipv4Addr::new(192, 0, 2, id as u8 - 1)))));
}

async fn serve() {
    let socket = UdpSocket::bind(("::", PORT)).await.unwrap();
    let mut buffer = [0; LONGEST];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        socket.send_to(&answer(&buffer[..len]), from).await.unwrap();
    }
}

fn kernel_server(address: &str) -> SocketAddr {
    let socket = KernelSocket::bind((address, 0)).unwrap();
    let bound = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; LONGEST];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&answer(&buffer[..len]), from).unwrap();
        }
    });
    bound
}

#[test]
fn names_are_asked_for_and_answered() {
    namespace::inside("kernel_dns::names_are_asked_for_and_answered", || {
        crate::veth();
        let servers = PAIRS.map(|(_, kernel)| kernel_server(kernel));
        let client = move |_: Handle| async move {
            spawn_local(serve());
            for server in servers {
                // The answer to the last needs two packets.
                for id in [1, 20, 150] {
                    let socket = UdpSocket::bind((any(&server), 0)).await.unwrap();
                    socket.connect(server).await.unwrap();
                    socket.send(&question(id)).await.unwrap();
                    let mut buffer = [0; LONGEST];
                    let read = rt::timeout(Duration::from_secs(10), socket.recv(&mut buffer));
                    let len = read.await.unwrap().unwrap();
                    check(&buffer[..len], id);
                }
            }
        };
        exchange(
            || Box::new(AfPacket::open("lw0", true).unwrap()),
            client,
            || {
                for (ours, _) in PAIRS {
                    let socket = KernelSocket::bind((any(&at(ours, PORT)), 0)).unwrap();
                    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                    for id in [1, 20, 150] {
                        socket.send_to(&question(id), at(ours, PORT)).unwrap();
                        let mut buffer = [0; LONGEST];
                        let (len, _) = socket.recv_from(&mut buffer).unwrap();
                        check(&buffer[..len], id);
                    }
                }
            },
        );
    });
}
