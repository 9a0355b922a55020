//! DNS by hickory's resolver, over UDP and TCP. Its server takes tokio's sockets alone; ours is
//! that of the example.

use std::net::IpAddr;

use hickory_resolver::Resolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::proto::rr::RecordType;
use lightwait::net::StackHandle;

use crate::world::{run, stacks};

#[path = "../../examples/dns/provider.rs"]
mod provider;
#[path = "../../examples/dns/server.rs"]
mod server;

/// A resolver that asks the server, over UDP first.
fn resolver(client: &StackHandle, server: &StackHandle) -> Resolver<provider::OnStack> {
    let servers = vec![NameServerConfig::udp_and_tcp(server.address())];
    let config = ResolverConfig::from_name_servers(servers);
    let provider = provider::OnStack::new(client);
    Resolver::builder_with_config(config, provider).build().unwrap()
}

#[test]
fn hickorys_resolver_asks_over_udp_and_turns_to_tcp() {
    run(async {
        let (server, client) = stacks();
        let serving = server.clone();
        tokio::spawn(async move { server::serve(&serving).await });
        let resolver = resolver(&client, &server);
        let addresses = resolver.lookup_ip("host.example.").await.unwrap();
        assert!(addresses.iter().eq([IpAddr::from(server::HOST)]));
        let counters = async || client.with_host(|host| *host.counters()).await.unwrap();
        let by_udp = counters().await;
        assert!(by_udp.datagrams_out >= 1 && by_udp.active_opens == 0);
        let text = resolver.lookup("long.example.", RecordType::TXT).await.unwrap();
        assert_eq!(text.answers().len(), server::LINES);
        assert_eq!(counters().await.active_opens, 1, "too long for a datagram");
        assert!(resolver.lookup_ip("nobody.example.").await.unwrap_err().is_nx_domain());
        // Many at once, each from a port of its own.
        let names = (0..100).map(|number| format!("no{number}.example."));
        let asked: Vec<_> = names.map(|name| resolver.lookup_ip(name)).collect();
        for answer in futures_util::future::join_all(asked).await {
            assert!(answer.unwrap_err().is_nx_domain());
        }
    });
}
