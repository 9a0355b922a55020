//! A program of one's own in virtual time: a bank that must count each deposit once, and clients
//! that ask again when no answer comes, over links that lose a fifth of all packets.
//! docs/virtual-time.md explains it.
//!
//! `cargo run --release -p lightwait-sim --example virtual_time`

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt::{sleep, timeout};
use lightwait_sim::{LinkConfig, Side, World};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

// ---- The program. It runs as it is on a TAP, too: nothing in it knows of a simulation.

#[derive(Default)]
struct Bank {
    seen: BTreeSet<u32>,
    balance: u32,
}

impl Bank {
    /// Takes a deposit, and returns the balance.
    fn deposit(&mut self, id: u32, amount: u32) -> u32 {
        // Without this question a deposit whose answer was lost would count twice.
        if self.seen.insert(id) {
            self.balance += amount;
        }
        self.balance
    }
}

/// Answers each line `ID AMOUNT` with the balance.
async fn serve(listener: TcpListener) -> io::Result<()> {
    let bank = Rc::new(RefCell::new(Bank::default()));
    loop {
        let (stream, _) = listener.accept().await?;
        spawn_local(converse(stream, bank.clone()));
    }
}

async fn converse(stream: TcpStream, bank: Rc<RefCell<Bank>>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let numbers: Vec<u32> = line.split(' ').filter_map(|it| it.parse().ok()).collect();
        let [id, amount] = numbers[..] else { return Err(io::ErrorKind::InvalidData.into()) };
        let answer = format!("{}\n", bank.borrow_mut().deposit(id, amount));
        writer.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

async fn ask(bank: SocketAddr, id: u32, amount: u32) -> io::Result<u32> {
    let mut stream = BufReader::new(TcpStream::connect(bank).await?);
    stream.write_all(format!("{id} {amount}\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await?;
    answer.trim().parse().map_err(|_| io::ErrorKind::UnexpectedEof.into())
}

/// Deposits until there is an answer. Returns the balance, and how often it had to ask.
async fn deposit(bank: SocketAddr, id: u32, amount: u32) -> (u32, u32) {
    for times in 1.. {
        if let Ok(Ok(balance)) = timeout(Duration::from_secs(1), ask(bank, id, amount)).await {
            return (balance, times);
        }
        sleep(Duration::from_millis(100)).await;
    }
    unreachable!("it asks for ever")
}

// ---- The test.

/// Runs one world. Returns how often clients asked, how much time passed there, and a hash of every
/// frame.
fn run(seed: u64) -> (u32, Duration, u64) {
    let link: LinkConfig = "delay=20ms,rate=10Mbit,loss=20%".parse().expect("a link");
    let mut world = World::two_hosts(&link, seed);
    let bank = SocketAddr::new(world.address(Side::B), 7);
    let listener = TcpListener::bind_on(&world.handle(Side::B), bank).expect("a free port");
    world.spawn(Side::B, serve(listener));
    let begin = world.now();
    let deposits = async move {
        let mut asked = 0;
        for id in 1..=5 {
            let (balance, times) = deposit(bank, id, 10).await;
            assert_eq!(balance, 10 * id, "seed {seed}: a deposit counts once");
            asked += times;
        }
        asked
    };
    let asked = world.run(Side::A, Duration::from_secs(600), deposits);
    let asked = asked.unwrap_or_else(|trouble| panic!("seed {seed}: {trouble}"));
    (asked, world.now().since(begin), world.cable().digest())
}

pub(crate) fn main() {
    let worlds: Vec<_> = (0..100).map(run).collect();
    let asked: u32 = worlds.iter().map(|world| world.0).sum();
    let passed: Duration = worlds.iter().map(|world| world.1).sum();
    println!("100 worlds, 500 deposits, asked for {asked} times, in {passed:.0?} of their time");
    assert!(asked > 500, "some answers came too late");
    assert!(run(7) == worlds[7] && run(7) != worlds[8], "a seed is a run");
}
