//! `curl` fetches files over a device.

use std::thread;

use crate::namespace;
use crate::server::{Cable, Server, URLS};
use crate::tools::{self, curl, sha256_of_file, sha256_of_output};

fn a_gibibyte_arrives_whole(cable: Cable) {
    let directory = tools::directory();
    let file = directory.path().join("large");
    tools::write_file(&file, 1024);
    let wanted = sha256_of_file(&file);
    let server = Server::on(cable, directory.path(), &[]);
    for url in URLS {
        assert_eq!(sha256_of_output(&mut curl(&format!("{url}/large"))), wanted, "{url}");
    }
    server.stop();
}

#[test]
fn a_gibibyte_arrives_whole_over_the_best_device() {
    let test = "download::a_gibibyte_arrives_whole_over_the_best_device";
    namespace::inside(test, &["curl"], || a_gibibyte_arrives_whole(Cable::best()));
}

#[test]
fn many_files_arrive_whole_over_a_packet_socket() {
    let test = "download::many_files_arrive_whole_over_a_packet_socket";
    namespace::inside(test, &["curl"], || {
        let directory = tools::directory();
        let files: Vec<_> = (0..8).map(|n| directory.path().join(n.to_string())).collect();
        files.iter().zip(0..).for_each(|(file, n)| tools::write_file(file, 1 + 3 * n));
        let server = Server::on(Cable::PacketSocket, directory.path(), &[]);
        thread::scope(|scope| {
            for (file, url) in files.iter().zip(0..8).zip(URLS.iter().cycle()) {
                let (file, n) = file;
                scope.spawn(move || {
                    let got = sha256_of_output(&mut curl(&format!("{url}/{n}")));
                    assert_eq!(got, sha256_of_file(file), "{url}/{n}");
                });
            }
        });
        server.stop();
    });
}
