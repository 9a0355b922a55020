//! DNS on our own UDP and TCP: hickory's resolver, and a server, on stacks at the ends of a wire in
//! memory.
//!
//! `cargo run -p lightwait --example dns` looks up an address, a text that needs TCP, and a name
//! that there is none of; it prints the answers and what crossed, and ends. `provider.rs` is all
//! that hickory needs of us.

mod provider;
mod server;

use std::error::Error;
use std::net::IpAddr;

use hickory_resolver::Resolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::proto::rr::RecordType;
use lightwait::Stack;
use provider::OnStack;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (server, client) = Stack::memory()?;
    let (server, client) = (server.spawn()?, client.spawn()?);
    let at = server.address();
    let serving = server.clone();
    tokio::spawn(async move { server::serve(&serving).await });

    let config = ResolverConfig::from_name_servers(vec![NameServerConfig::udp_and_tcp(at)]);
    let resolver = Resolver::builder_with_config(config, OnStack::new(&client)).build()?;
    let addresses = resolver.lookup_ip("host.example.").await?;
    println!("host.example: {:?}", addresses.iter().collect::<Vec<_>>());
    assert!(addresses.iter().eq([IpAddr::from(server::HOST)]));

    let text = resolver.lookup("long.example.", RecordType::TXT).await?;
    println!("long.example: {} lines of text", text.answers().len());
    assert_eq!(text.answers().len(), server::LINES);

    let unknown = resolver.lookup_ip("nobody.example.").await.unwrap_err();
    println!("nobody.example: {unknown}");
    assert!(unknown.is_nx_domain());

    let counters = client.with_host(|host| *host.counters()).await?;
    println!(
        "sent: {} datagrams; opened: {} connection",
        counters.datagrams_out, counters.active_opens
    );
    assert_eq!(counters.active_opens, 1, "for the text alone");
    Ok(())
}
