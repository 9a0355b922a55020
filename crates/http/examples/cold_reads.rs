//! Reads that the kernel's caches do not hold, by threads and by io_uring: how many a second, and
//! what one takes of the processor.
//!
//! `cargo run --release -p lightwait-http --example cold_reads -- DIRECTORY`, on the disk in
//! question. It writes a file of 256 MiB there, and removes it.

use std::fs::File;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use lightwait_http::path::resolve;
use lightwait_http::source::ReadBuffer;
use lightwait_http::{Disk, FileSource, ThreadPoolFiles};
use rustix::fs::{Advice, fadvise};
use tokio::task::LocalSet;

const FILE_BYTES: usize = 256 << 20;
const READ_BYTES: usize = 16 << 10;
const READS: usize = 8192;
const TURNS: usize = 3;

/// What the process has taken of the processor.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let rest = stat.rsplit(')').next().unwrap();
    let ticks: Vec<u64> = rest.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    Duration::from_millis(ticks.iter().sum::<u64>() * 10)
}

fn main() -> io::Result<()> {
    let directory = std::env::args().nth(1).expect("a directory");
    let place = tempfile::tempdir_in(directory)?;
    let mut file = File::create_new(place.path().join("cold"))?;
    for block in 0..FILE_BYTES >> 20 {
        file.write_all(&vec![block as u8; 1 << 20])?;
    }
    file.sync_all()?;
    println!("means, at once: reads/s, µs of the processor a read (best of {TURNS} turns)");
    for at_once in [1, 4, 16, 64] {
        let mut best = [(0.0, f64::MAX); 2];
        for _ in 0..TURNS {
            for (number, disk) in [Disk::Threads, Disk::Uring].into_iter().enumerate() {
                let files = ThreadPoolFiles::new(place.path(), 4)?.by(disk)?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
                let (begin, before) = (Instant::now(), processor());
                read_all(&Rc::new(files), at_once);
                let reads = READS as f64;
                let rate = reads / begin.elapsed().as_secs_f64();
                let each = (processor() - before).as_secs_f64() * 1e6 / reads;
                best[number] = (rate.max(best[number].0), each.min(best[number].1));
            }
        }
        for (name, (rate, each)) in ["threads", "io_uring"].into_iter().zip(best) {
            println!("{name:>8}, {at_once:>2}: {rate:>7.0}, {each:>5.1}");
        }
    }
    Ok(())
}

/// Reads each place once, in an order that nobody foresees.
fn read_all(files: &Rc<ThreadPoolFiles>, at_once: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tasks = LocalSet::new();
    let path = resolve("/cold").unwrap().path;
    for task in 0..at_once {
        let (files, path) = (files.clone(), path.clone());
        tasks.spawn_local(async move {
            let opened = files.open(&path).await.unwrap();
            for number in (task..READS).step_by(at_once) {
                let place = number * 40_503 % (FILE_BYTES / READ_BYTES);
                let offset = (place * READ_BYTES) as u64;
                let read =
                    files.read_at(&opened.handle, offset, ReadBuffer::zeroed(READ_BYTES)).await;
                assert_eq!(read.unwrap()[0], (offset >> 20) as u8);
            }
        });
    }
    runtime.block_on(tasks);
}
