#![allow(missing_docs, clippy::all, clippy::pedantic)]
use lightwait_core::frame::*;
use lightwait_core::host::any_local;
use lightwait_core::time::Duration;
use lightwait_core::*;
use std::collections::VecDeque;
use std::net::SocketAddr;

fn host(addr: &str, secret: u8) -> Host {
    let config =
        Config::new(Capabilities::plain(Medium::Ip, 1500), addr.parse().unwrap(), [secret; 32]);
    Host::new(config).unwrap()
}

fn pass(from: &mut Outbox, to: &mut Host, now: Instant, frames: &mut u64) {
    while let Some(frame) = from.take() {
        *frames += 1;
        to.on_frame(now, RxFrame::plain(&frame.head));
        from.recycle(frame);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let count: usize = args[1].parse().unwrap();
    let at_once: usize = args[2].parse().unwrap();
    let mut now = Instant::from_millis(1000);
    let mut server = host("10.0.0.1/8", 1);
    let mut client = host("10.0.0.2/8", 2);
    let listener = server.listen("10.0.0.1:80".parse().unwrap(), 1024).unwrap();
    let remote: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let (mut out_s, mut out_c) = (Outbox::new(256), Outbox::new(256));
    let (mut open, mut done, mut live) = (0, 0, 0);
    let mut frames = 0;
    let request = [7u8; 100];
    let response = [8u8; 500];
    let mut buf = [0u8; 2048];
    let mut got: VecDeque<usize> = VecDeque::new();
    let _ = &mut got;
    while done < count {
        while live < at_once && open < count {
            client.connect(now, any_local(&remote), remote).unwrap();
            live += 1;
            open += 1;
        }
        now = now + Duration::from_nanos(1000);
        client.emit(now, &mut out_c);
        pass(&mut out_c, &mut server, now, &mut frames);
        server.on_time(now);
        while let Some(event) = server.event() {
            match event {
                Event::Acceptable(l) => {
                    while let Ok(id) = server.accept(now, l) {
                        let _ = id;
                    }
                }
                Event::Ready(id, ready) => {
                    if ready.contains(Readiness::READABLE) {
                        if let Ok(n) = server.read(now, id, &mut buf) {
                            if n == 100 {
                                server.write(now, id, &response).unwrap();
                                server.close(now, id);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        let _ = listener;
        server.emit(now, &mut out_s);
        pass(&mut out_s, &mut client, now, &mut frames);
        client.on_time(now);
        while let Some(event) = client.event() {
            if let Event::Ready(id, ready) = event {
                if ready.contains(Readiness::READABLE) {
                    let mut end = false;
                    loop {
                        match client.read(now, id, &mut buf) {
                            Ok(0) => {
                                end = true;
                                break;
                            }
                            Ok(_) => {}
                            Err(_) => break,
                        }
                    }
                    if end {
                        client.close(now, id);
                        done += 1;
                        live -= 1;
                        continue;
                    }
                } else if ready.contains(Readiness::WRITABLE) {
                    client.write(now, id, &request).unwrap();
                }
            }
        }
    }
    eprintln!(
        "{} connections, {} frames, {:.2} a connection; tw {}",
        done,
        frames,
        frames as f64 / done as f64,
        server.time_wait_len()
    );
}
