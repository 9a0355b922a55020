//! A server of a few names, over UDP, and over TCP for what is too long for that (RFC 1035 §4.2).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use lightwait::net::{StackHandle, TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The longest question that is taken.
const LONGEST: usize = 4096;

/// Lines of the text of `long.example`, of 200 bytes each.
pub(crate) const LINES: usize = 40;

/// Seconds for which an answer may be kept.
const TTL: u32 = 60;

/// The address of `host.example`.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// Answers at port 53 of that stack, until it ends.
pub(crate) async fn serve(stack: &StackHandle) -> io::Result<()> {
    let at = SocketAddr::from((stack.address(), 53));
    let socket = UdpSocket::bind_on(stack, at).await?;
    let listener = TcpListener::bind_on(stack, at).await?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream));
        }
    });
    let mut question = [0; LONGEST];
    loop {
        let (len, from) = socket.recv_from(&mut question).await?;
        if let Some(answer) = answer(&question[..len], true) {
            socket.send_to(&answer, from).await?;
        }
    }
}

/// Over TCP each message stands behind its length.
async fn converse(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let mut question = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut question).await?;
        let Some(answer) = answer(&question, false) else { return Ok(()) };
        stream.write_u16(answer.len() as u16).await?;
        stream.write_all(&answer).await?;
    }
}

/// The answer; none to what is no question. `is_short` if it has to be as short as the asker says.
fn answer(question: &[u8], is_short: bool) -> Option<Vec<u8>> {
    let question = Message::from_vec(question).ok()?;
    if question.message_type != MessageType::Query {
        return None;
    }
    let mut answer = Message::response(question.id, question.op_code);
    answer.metadata.authoritative = true;
    answer.metadata.recursion_desired = question.recursion_desired;
    for query in &question.queries {
        answer.add_query(query.clone());
        match records(query.name(), query.query_type()) {
            Some(records) => _ = answer.add_answers(records),
            None => answer.metadata.response_code = ResponseCode::NXDomain,
        }
    }
    let bytes = answer.to_vec().ok()?;
    if is_short && bytes.len() > question.max_payload().into() {
        return answer.truncate().to_vec().ok();
    }
    Some(bytes)
}

/// The records of that name and type; `None` if there is no such name.
fn records(name: &Name, kind: RecordType) -> Option<Vec<Record>> {
    let data = match (name.to_ascii().as_str(), kind) {
        ("host.example.", RecordType::A) => vec![RData::A(A(HOST))],
        ("long.example.", RecordType::TXT) => {
            (0..LINES).map(|line| RData::TXT(TXT::new(vec![format!("{line:0>200}")]))).collect()
        }
        ("host.example." | "long.example.", _) => Vec::new(),
        _ => return None,
    };
    Some(data.into_iter().map(|data| Record::from_rdata(name.clone(), TTL, data)).collect())
}
