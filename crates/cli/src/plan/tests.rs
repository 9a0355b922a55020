use super::*;
use crate::args::{Command, CommandLine};
use crate::log::{AccessOutput, Form, Level};
use clap::Parser;
use lightwait_core::config::PoolPolicy::{Naive, Priority, RoundRobin};
use lightwait_core::config::{Algorithm, SendSize};
use lightwait_core::{Capabilities, Config, Medium};

fn plan(line: &str) -> Result<Plan, Failure> {
    let words = ["lightwait", "serve"].into_iter().chain(line.split_whitespace());
    match CommandLine::try_parse_from(words).expect(line).command {
        Command::Serve(args) => Plan::new(&args),
        _ => unreachable!("it begins with serve"),
    }
}

fn stack_of(line: &str) -> Stack {
    plan(line).unwrap_or_else(|failure| panic!("{line}: {failure}")).stack
}

fn refusal(line: &str) -> String {
    match plan(line) {
        Err(Failure::Usage(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

fn cidrs(texts: &[&str]) -> Vec<Cidr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The kernel's addresses that a TAP gets.
fn host_addresses(line: &str) -> Vec<Cidr> {
    match stack_of(&format!("--tap t {line}")) {
        Stack::Device { device: DevicePlan::Tap { host_addresses, .. }, .. } => host_addresses,
        other => panic!("{other:?}"),
    }
}

#[test]
fn with_nothing_said_the_bridge_serves_this_directory() {
    let plan = plan("").unwrap();
    assert_eq!(plan.directory, PathBuf::from("."));
    assert_eq!(plan.stack, Stack::Bridge { listen: "127.0.0.1:8080".parse().unwrap() });
    assert!(plan.files.listing && !plan.files.hidden && plan.files.index == "index.html");
    assert_eq!(
        plan.log,
        LogPlan {
            form: Form::COMBINED,
            file: None,
            access: None,
            requests: true,
            failures: false,
            level: Level::Off
        }
    );
    assert!(plan.watch.capture.is_none() && !plan.watch.trace && plan.watch.fault.is_none());
}

#[test]
fn a_quiet_server_still_writes_an_access_log_of_its_own() {
    assert!(!plan("-q").unwrap().log.requests);
    for line in ["-q --access-log f", "-q --access-log f --log-fields", "-q --access-log f --json"]
    {
        let log = plan(line).unwrap().log;
        assert!(log.requests && log.access == Some(AccessOutput::File("f".into())), "{line}");
    }
    assert!(refusal("-q --log-fields").contains("give --access-log FILE as well"));
}

#[test]
fn a_queue_of_faults_needs_a_rate() {
    for idle in ["queue=64KiB", "queue=9packets,loss=1%", "codel=5ms:100ms"] {
        let key = &idle[..5];
        let text = refusal(&format!("--fault {idle}"));
        assert!(text.starts_with(&format!("--fault: {key} does nothing without a rate")), "{text}");
        assert!(plan(&format!("--fault {idle},rate=1Mbit")).is_ok());
    }
    assert!(plan("--fault loss=1%").is_ok());
}

#[test]
fn the_bridge_listens_where_it_is_told() {
    let at = |text: &str| Stack::Bridge { listen: text.parse().unwrap() };
    assert_eq!(stack_of("--listen [::1]:0"), at("[::1]:0"));
    assert_eq!(stack_of("--port 9000"), at("127.0.0.1:9000"));
    assert!(refusal("--listen 127.0.0.1:1 --port 2").contains("--port"));
}

#[test]
fn flags_of_a_device_need_one() {
    for line in [
        "--ip 10.0.0.2/24",
        "--host-ip 10.0.0.1/24",
        "--gateway 10.0.0.1",
        "--mtu 1500",
        "--mac 02:00:00:00:00:01",
        "--probe 1s",
    ] {
        let text = refusal(line);
        let flag = line.split(' ').next().unwrap();
        assert!(text.starts_with(flag) && text.contains("--tap NAME"), "{text}");
    }
    assert!(refusal("--tap t --ip 10.0.0.2/24 --listen 127.0.0.1:1").contains("--listen"));
}

#[test]
fn a_tap_gets_port_80_and_the_kernel_the_first_foreign_address() {
    let expected = Stack::Device {
        device: DevicePlan::Tap {
            is_tun: false,
            name: "lw0".to_owned(),
            mtu: 1500,
            host_addresses: cidrs(&["10.9.0.1/24", "fd00::1/64"]),
        },
        addresses: cidrs(&["10.9.0.2/24", "fd00::2/64"]),
        gateways: Vec::new(),
        hardware: Hardware::Stable,
        probe: Duration::ZERO,
        port: 80,
    };
    assert_eq!(stack_of("--tap lw0 --ip 10.9.0.2/24 --ip fd00::2/64"), expected);
    assert_eq!(host_addresses("--ip 10.9.0.1/24"), cidrs(&["10.9.0.2/24"]));
    assert_eq!(host_addresses("--ip 10.9.0.0/31"), cidrs(&["10.9.0.1/31"]));
    let two = host_addresses("--ip 10.9.0.1/24 --ip 10.9.0.2/24");
    assert_eq!(two, cidrs(&["10.9.0.3/24"]), "one is enough for one subnet");
}

#[test]
fn a_host_address_of_ones_own_is_checked() {
    assert_eq!(host_addresses("--ip 10.9.0.2/24 --host-ip 10.9.0.7/24"), cidrs(&["10.9.0.7/24"]));
    for (host, why) in [
        ("10.9.0.2/24", "our own"),
        ("10.8.0.1/24", "subnet of any --ip"),
        ("10.9.0.255/24", "broadcast"),
    ] {
        let text = refusal(&format!("--tap t --ip 10.9.0.2/24 --host-ip {host}"));
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn addresses_are_ones_that_a_host_can_have() {
    assert!(refusal("--tap t").contains("--ip 10.9.0.2/24"));
    for (ip, why) in [
        ("0.0.0.0/0", "can have"),
        ("224.0.0.1/24", "can have"),
        ("ff02::1/64", "can have"),
        ("127.0.0.2/8", "loopback"),
        ("10.9.0.0/24", "subnet itself"),
        ("fd00::/64", "subnet itself"),
        ("10.9.0.255/24", "broadcast"),
    ] {
        let text = refusal(&format!("--tap t --ip {ip}"));
        assert!(text.starts_with(&format!("--ip {ip}: ")) && text.contains(why), "{text}");
    }
    assert!(refusal("--tap t --ip 10.9.0.2/24 --ip 10.9.0.2/16").contains("twice"));
    assert_eq!(cidrs(&["10.9.0.255/31"]).len(), 1);
    stack_of("--tap t --ip 10.9.0.255/31");
}

#[test]
fn a_gateway_is_on_link_and_one_a_version() {
    let base = "--tap t --ip 10.9.0.2/24 --ip fd00::2/64";
    match stack_of(&format!("{base} --gateway 10.9.0.1 --gateway fd00::1")) {
        Stack::Device { gateways, .. } => assert_eq!(gateways.len(), 2),
        other => panic!("{other:?}"),
    }
    for (gateways, why) in [
        ("--gateway 10.8.0.1", "reached"),
        ("--gateway 10.9.0.2", "our own"),
        ("--gateway 10.9.0.1 --gateway 10.9.0.3", "one gateway"),
    ] {
        assert!(refusal(&format!("{base} {gateways}")).contains(why), "{gateways}");
    }
}

#[test]
fn the_least_mtu_passes_and_one_byte_less_does_not() {
    for (ip, least) in [("10.9.0.2/24", 576), ("fd00::2/64", 1280)] {
        stack_of(&format!("--tap t --ip {ip} --mtu {least}"));
        assert!(refusal(&format!("--tap t --ip {ip} --mtu {}", least - 1)).contains("at least"));
    }
}

#[test]
fn how_we_are_found_and_how_long_we_ask_may_be_said() {
    let claim = |line: &str| match stack_of(&format!("{line} --ip 10.9.0.2/24")) {
        Stack::Device { hardware, probe, .. } => (hardware, probe.as_millis()),
        other => panic!("{other:?}"),
    };
    let given = Hardware::Given([2, 0xab, 0, 0, 0, 1]);
    assert_eq!(claim("--tap t --mac 02:AB:00:00:00:01 --probe 7s"), (given, 7000));
    let own = "--af-packet v --mac interface --probe 200ms";
    assert_eq!(claim(own), (Hardware::Interface, 200));
    assert_eq!(claim("--af-packet v --probe 0s"), (Hardware::Stable, 0));
    let refused = refusal("--tap t --ip 10.9.0.2/24 --mac interface");
    assert!(refused.starts_with("--mac interface:"), "{refused}");
    for (text, why) in [
        ("01:00:00:00:00:01", "a group"),
        ("00:00:00:00:00:00", "nobody's"),
        ("02:00:00:00:00", "six octets"),
        ("02:00:00:00:00:01:01", "six octets"),
        ("02:00:00:00:00:1", "six octets"),
        ("02:00:00:00:00:+1", "six octets"),
        ("own", "`interface`"),
    ] {
        assert!(Hardware::from_str(text).is_err_and(|error| error.contains(why)), "{text}");
    }
}

#[test]
fn a_packet_socket_takes_the_interface_as_it_is() {
    let expected = Stack::Device {
        device: DevicePlan::AfPacket { interface: "veth0".to_owned() },
        addresses: cidrs(&["10.9.0.2/24"]),
        gateways: Vec::new(),
        hardware: Hardware::Stable,
        probe: Duration::from_millis(1200),
        port: 8000,
    };
    assert_eq!(stack_of("--af-packet veth0 --ip 10.9.0.2/24 --port 8000"), expected);
    for flag in ["--mtu 1500", "--host-ip 10.9.0.1/24"] {
        assert!(refusal(&format!("--af-packet v --ip 10.9.0.2/24 {flag}")).contains("--tap"));
    }
    assert!(refusal("--af-packet v --ip 10.9.0.2/24 --port 0").contains("--port 0"));
}

#[test]
fn a_subnet_of_one_address_leaves_none_for_the_kernel() {
    stack_of("--tap t --ip 10.9.0.1/31");
    assert!(refusal("--tap t --ip 10.9.0.1/32").contains("larger"));
    assert!(refusal("--tap t --ip fd00::1/128").contains("larger"));
}

#[test]
fn files_and_logs_follow_their_flags() {
    let plan = plan("site --no-listing --hidden --index home.html --json -v").unwrap();
    assert_eq!(plan.directory, PathBuf::from("site"));
    assert!(!plan.files.listing && plan.files.hidden && plan.files.index == "home.html");
    assert_eq!(
        plan.log,
        LogPlan {
            form: Form::JSON,
            file: None,
            access: None,
            requests: true,
            failures: true,
            level: Level::Off
        }
    );
    assert!(refusal("--index a/b").contains("--index"));
}

/// The configuration that this command line gives.
fn config_of(line: &str) -> Config {
    let address = "10.9.0.2/24".parse().unwrap();
    let config = Config::new(Capabilities::plain(Medium::Ip, 1500), address, [0; 32]);
    plan(line).unwrap().knobs.on(config)
}

#[test]
fn memory_is_one_budget_and_the_bridges_two_stacks_share_it() {
    let limits_of = |line: &str| config_of(line).limits;
    let device = limits_of("--tap t --ip 10.9.0.2/24 --memory 64M");
    assert_eq!((device.pages, device.receive_window_bytes), ((64 << 20) / 4096, 32 << 20));
    assert_eq!(limits_of("--memory 64M").pages, (32 << 20) / 4096);
    assert_eq!(limits_of("--set limits.pages=77").pages, 77);
}

#[test]
fn a_flag_and_a_knob_do_not_say_two_things() {
    let device = "--tap t --ip 10.9.0.2/24";
    for (line, pair) in [
        ("--congestion reno --set congestion.algorithm=cubic", "--congestion and --set "),
        ("--memory 64M --set limits.pages=77", "--memory and --set limits.pages "),
        ("--pool 1M --set limits.pages=77", "--pool and --set limits.pages "),
        ("--pool-policy psc --set pool.policy=line", "--pool-policy and --set pool.policy "),
        ("--send-buffer los --set buffers.send_size=round", "--send-buffer and --set "),
        ("--send-buffer fixed:1M --set buffers.send=9999", "--send-buffer and --set buffers.send "),
        ("--send-buffer linux:lowat=1K --set buffers.send_lowat=off", "--send-buffer and --set "),
        (
            &format!("{device} --time-wait negotiate --set time_wait.negotiate=self"),
            "--time-wait negotiate and --set time_wait.negotiate ",
        ),
        ("--set sack=on --set sack=off", "--set sack=on and --set sack=off "),
    ] {
        let text = refusal(line);
        assert!(text.starts_with(pair) && text.ends_with(": leave one out"), "{line}: {text}");
    }
    // Such a buffer has no size of its own.
    for line in ["--send-buffer los --set buffers.send=77777", "--set sack=on --set sack=on"] {
        assert!(plan(line).is_ok(), "{line}");
    }
}

#[test]
fn limits_of_the_server_are_taken_and_none_may_be_nothing() {
    let server =
        plan("--max-connections 5 --max-client-connections 3 --max-responses 4 --min-rate 0")
            .unwrap()
            .server;
    assert_eq!((server.max_connections, server.max_client_connections), (5, 3));
    assert_eq!((server.max_responses, server.min_rate_bytes), (4, 0));
    for flag in ["--max-connections", "--max-client-connections", "--max-responses"] {
        let text = refusal(&format!("{flag} 0"));
        assert!(text.starts_with(flag) && text.contains("1 at least"), "{text}");
    }
}

#[test]
fn the_congestion_control_is_chosen_by_a_flag_or_a_knob() {
    let algorithm = |line: &str| config_of(line).tcp.congestion.algorithm;
    assert_eq!([algorithm(""), algorithm("--congestion cubic")], [Algorithm::Cubic; 2]);
    assert_eq!(algorithm("--congestion reno"), Algorithm::Reno);
    assert_eq!(algorithm("--congestion dctcp"), Algorithm::Dctcp);
    assert_eq!(algorithm("--set congestion.algorithm=reno"), Algorithm::Reno);
}

#[test]
fn a_named_knob_goes_before_the_flags_for_buffers_and_pages() {
    let tcp_of = |line: &str| config_of(line).tcp;
    let tcp = tcp_of("");
    assert_eq!((tcp.buffers.send_size(), tcp.pool.policy), (SendSize::Los, Priority));
    let tcp = tcp_of("--send-buffer fixed:32K --pool-policy round-robin");
    assert_eq!((tcp.buffers.send_size(), tcp.pool.policy), (SendSize::Fixed(32 << 10), RoundRobin));
    let tcp = tcp_of("--send-buffer linux:lowat=16K --pool-policy naive");
    let lowat = SendSize::Linux { lowat: Some(16 << 10) };
    assert_eq!((tcp.buffers.send_size(), tcp.pool.policy), (lowat, Naive));
    let send = |line: &str| config_of(line).tcp.buffers.send;
    let sizes = ["", "--send-buffer linux", "--send-buffer round", "--send-buffer fixed:32K"];
    assert_eq!(sizes.map(send), [4 << 20, 4 << 20, 1 << 20, 32 << 10]);
    assert_eq!(send("--memory 64M"), 2 << 20, "a sixteenth of what a stack has");
    assert_eq!([send("--pool 1M"), send("--memory 8M")], [1 << 20, 1 << 20]);
    assert_eq!(send("--set buffers.send=77777"), 77777);
    let sharing = |line: &str| config_of(line).tcp.pool.most_connections;
    assert_eq!(sharing("--pool 1M --pool-policy naive"), 48);
    assert_eq!(sharing("--pool 1M --pool-policy naive --max-connections 10"), 13);
    assert_eq!(sharing("--pool-policy naive --set pool.most_connections=3"), 3);
    let tcp = tcp_of("--set buffers.send_size=round");
    assert_eq!(tcp.buffers.send_size(), SendSize::Round);
    assert_eq!(config_of("--memory 64M --pool 1MiB").limits.pages, 256);
    let segments = "--memory 64M --set limits.page=512 ";
    assert_eq!(config_of(&format!("{segments} --pool 1MiB")).limits.pages, 2048);
    assert_eq!(config_of(segments).limits.pages, (32 << 20) / 512);
    for line in ["--pool 1M --set limits.pages=9", "--memory 64M --pool 33M", "--pool 63K"] {
        assert!(refusal(line).contains("--pool"), "{line}");
    }
}

#[test]
fn bridged_connections_leave_descriptors_for_files() {
    assert_eq!(bridged_connections(1024, 512), 256);
    assert_eq!(bridged_connections(1 << 20, 512), (1 << 19) - 256, "more than the default's limit");
    assert_eq!(bridged_connections(1, 1), 1);
    let asked = plan("--max-connections 3").unwrap();
    assert_eq!(asked.server.max_connections, 3);
}

#[test]
fn the_cache_of_files_is_a_part_of_the_memory() {
    let bytes = |line: &str| plan(line).unwrap().files.cache_bytes;
    assert_eq!(bytes("--memory 1G --tap t --ip 10.0.0.2/24"), 64 << 20);
    assert_eq!(bytes("--memory 8M --tap t --ip 10.0.0.2/24"), 2 << 20);
    assert_eq!(bytes("--memory 8M"), 1 << 20, "the bridge's two stacks have half of it each");
    assert_eq!(bytes("--pool 256K"), 64 << 10);
    assert_eq!(bytes("--memory 8M --file-cache 1M"), 1 << 20);
    assert_eq!(bytes("--file-cache 0"), 0);
    assert!(refusal("--memory 8M --file-cache 1025K").contains("here 1048576"));
    let files = plan("--file-cache-open 7 --file-cache-age 250ms").unwrap().files;
    assert_eq!((files.cache_open, files.cache_age.as_millis()), (7, 250));
    assert!(plan("").unwrap().file_delay.is_zero());
    assert!(refusal("--file-delay 30001ms").contains("--file-delay: 30s at most"));
    assert!(plan("--file-delay 30s").is_ok());
    assert!(refusal("--file-cache-open 999999999").contains("half of what the process may open"));
    assert_eq!(plan("--file-delay 20ms").unwrap().file_delay.as_millis(), 20);
    assert_eq!(plan("").unwrap().disk, Disk::Threads);
    assert_eq!(plan("--file-io io-uring").unwrap().disk, Disk::Uring);
}

#[test]
fn a_shard_needs_memory_to_begin_with() {
    let text = refusal("--tap t --ip 10.9.0.2/24 --memory 4M --shards 64");
    assert!(text.contains("--memory: 64 shards share 4194304 bytes"), "{text}");
    assert_eq!(plan("--tap t --ip 10.9.0.2/24 --memory 16M --shards 64").unwrap().shards, 64);
    // The bridge has two stacks.
    assert!(plan("--memory 16M --shards 64").is_err());
}

#[test]
fn the_ports_of_af_xdp_have_the_servers_among_them() {
    let ports = |line: &str| match stack_of(line) {
        Stack::Device { device: DevicePlan::AfXdp { ports, .. }, .. } => ports,
        other => panic!("{other:?}"),
    };
    assert_eq!(ports("--afxdp e --ip 10.9.0.2/24"), None);
    let taken = ports("--afxdp e --ip 10.9.0.2/24 --afxdp-ports 80-90");
    assert_eq!(taken, Some(Ports { first: 80, last: 90 }));
    let text = refusal("--afxdp e --ip 10.9.0.2/24 --afxdp-ports 81-90");
    assert_eq!(text, "--afxdp-ports 81-90: the server's port, 80, is not among them");
}

#[test]
fn https_has_its_port_and_certificates_have_their_keys() {
    let port = |line: &str| plan(line).unwrap().tls.map(|tls| tls.port);
    assert_eq!(port(""), None);
    assert_eq!(port("--self-signed"), Some(8443));
    assert_eq!(port("--self-signed --https-port 0 --listen 127.0.0.1:0"), Some(0));
    let device = "--tap t --ip 10.9.0.2/24 --self-signed";
    assert_eq!(port(device), Some(443));
    let files = plan("--cert a --key b --cert c --key d --redirect-https").unwrap().tls.unwrap();
    let pair = |chain: &str, key: &str| Pair { chain: chain.into(), key: key.into() };
    let shown = Shown::Files(vec![pair("a", "b"), pair("c", "d")]);
    assert_eq!(files, TlsPlan { shown, port: 8443, redirects: true });
    let hsts = plan("--self-signed --hsts 60").unwrap().server.strict_transport;
    assert_eq!(hsts, Some(Duration::from_secs(60)));
    for (line, wanted) in [
        ("--cert a", "--cert and --key go in pairs"),
        ("--cert a --key b --key c", "there are 1 and 2"),
        ("--https-port 1", "--https-port needs a certificate"),
        ("--redirect-https", "--redirect-https needs a certificate"),
        ("--hsts 1", "--hsts needs a certificate"),
        ("--self-signed --https-port 8080", "HTTP has this port"),
        ("--self-signed --port 8443", "HTTP has this port"),
        (&format!("{device} --https-port 0"), "--https-port 0"),
        (&format!("{device} --port 443"), "HTTP has this port"),
    ] {
        assert!(refusal(line).contains(wanted), "{line}: {}", refusal(line));
    }
    let xdp =
        |ports: &str| format!("--afxdp e --ip 10.9.0.2/24 --afxdp-ports {ports} --self-signed");
    assert_eq!(port(&xdp("80-443")), Some(443));
    assert!(refusal(&xdp("80-442")).contains("the port of HTTPS, 443, is not among them"));
}
