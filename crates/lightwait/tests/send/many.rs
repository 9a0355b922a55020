//! Many connections, from several threads.

use lightwait::net::{TcpListener, TcpStream};
use lightwait_core::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{PORT, run, stacks};

#[test]
fn thousands_of_connections_are_served_from_several_threads() {
    const CLIENTS: usize = 8;
    const EACH: usize = 250;
    run(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), PORT)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    while let Ok(asked) = stream.read_u32().await {
                        stream.write_u32(asked + 1).await.unwrap();
                    }
                });
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = client.clone();
                tokio::spawn(async move {
                    let mut streams = Vec::new();
                    for index in 0..EACH {
                        let mut stream = TcpStream::connect_on(&client, at).await.unwrap();
                        let asked = (number * EACH + index) as u32;
                        stream.write_u32(asked).await.unwrap();
                        streams.push((stream, asked));
                    }
                    for (stream, asked) in &mut streams {
                        assert_eq!(stream.read_u32().await.unwrap(), *asked + 1);
                        stream.write_u32(*asked).await.unwrap();
                    }
                    for (stream, asked) in &mut streams {
                        assert_eq!(stream.read_u32().await.unwrap(), *asked + 1);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        while server.with_host(Host::connections).await.unwrap() > 0 {
            tokio::task::yield_now().await;
        }
        serving.abort();
    });
}
