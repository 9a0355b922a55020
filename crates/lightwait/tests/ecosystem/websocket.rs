//! WebSocket by tokio-tungstenite.

use futures_util::{SinkExt, StreamExt};
use lightwait::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{accept_async, client_async};

use crate::world::{run, stacks};

#[test]
fn websocket_messages_are_echoed() {
    run(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), 80)).await.unwrap();
        let echo = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut socket = accept_async(stream).await.unwrap();
            while let Some(message) = socket.next().await {
                let message = message.unwrap();
                if message.is_text() || message.is_binary() {
                    socket.send(message).await.unwrap();
                }
            }
        });
        let stream = TcpStream::connect_on(&client, (server.address(), 80)).await.unwrap();
        let url = format!("ws://{}/", server.address());
        let (mut socket, response) = client_async(url, stream).await.unwrap();
        assert_eq!(response.status().as_u16(), 101);
        for message in [Message::text("hello"), Message::binary(vec![3; 300_000])] {
            socket.send(message.clone()).await.unwrap();
            assert!(socket.next().await.unwrap().unwrap() == message);
        }
        socket.close(None).await.unwrap();
        assert!(socket.next().await.is_none_or(|message| message.unwrap().is_close()));
        drop(socket);
        echo.await.unwrap();
    });
}
