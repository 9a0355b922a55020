//! Sockets of AF_XDP on a veth, against the kernel at its other end, and beside the kernel's own
//! stack on the same interface.

use std::net::UdpSocket;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant as Moment};

use lightwait::device::{AfXdp, AfXdpConfig, Device, LinkState, Losses, XdpMode};
use lightwait::driver::{self, SPIN, Stop};
use lightwait::shard::Shard;
use lightwait_core::Outbox;
use lightwait_core::frame::TxChecksum;

use crate::frames::{BROADCAST, arp};
use crate::kernel_tcp::{self, MUCH};
use crate::namespace::{inside, inside_as_user, ip, run};
use crate::queues::{CONNECTIONS, drain, knock, syn};
use crate::{
    KERNEL, OURS, an_undone_checksum_is_completed, receive, resolve, send,
    the_kernel_answers_an_echo,
};

/// A veth with so many queues at both ends, whose far end has the kernel's addresses and completes
/// its checksums.
fn veth(queues: u32) {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add lw0 {queues} type veth peer name lw1 {queues}"));
    ip("addr add 10.77.0.1/24 dev lw1");
    ip("addr add fd77::1/64 dev lw1 nodad");
    run("ethtool", "-K lw1 tx off tso off gso off");
    ip("link set lw1 up");
}

fn config() -> AfXdpConfig {
    AfXdpConfig::new("lw0", vec![OURS.into(), "fd77::2".parse().unwrap()])
}

/// The device; none where the kernel does not let us, which it prints.
fn opened<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Ok(device) => Some(device),
        Err(error) if error.to_string().contains("CAP_") => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn over_af_xdp_the_kernel_answers() {
    inside("af_xdp::over_af_xdp_the_kernel_answers", || {
        veth(1);
        let Some(mut device) = opened(AfXdp::open(&config())) else { return };
        assert_eq!(device.mode(), XdpMode::Driver);
        let has = device.capabilities();
        assert_eq!((has.mtu, has.segmentation), (1500, 0));
        // Since Linux 6.8.
        if has.checksum {
            let socket = UdpSocket::bind((KERNEL, 0)).unwrap();
            an_undone_checksum_is_completed(&mut device, &socket);
        }
        the_kernel_answers_an_echo(&mut device);
        assert_eq!(device.losses().unwrap(), Losses::default());
        assert!(device.counters().transmitted >= 2 && device.counters().received >= 2);
        // A second one is refused, until the first is gone.
        let busy = AfXdp::open(&config()).unwrap_err().to_string();
        assert!(busy.contains("has a program of XDP already"), "{busy}");
        drop(device);
        for _ in 0..20 {
            the_kernel_answers_an_echo(&mut AfXdp::open(&config()).unwrap());
        }
    });
}

#[test]
fn tcp_over_af_xdp() {
    inside("af_xdp::tcp_over_af_xdp", || {
        veth(1);
        let Some(device) = opened(AfXdp::open(&config())) else { return };
        kernel_tcp::exchange(move || Box::new(device), MUCH);
    });
}

#[test]
fn tcp_over_af_xdp_behind_a_driver_that_knows_no_xdp() {
    inside("af_xdp::tcp_over_af_xdp_behind_a_driver_that_knows_no_xdp", || {
        veth(1);
        // A veth refuses a program where the other end may send frames larger than a page.
        ip("link set lw1 mtu 9000");
        let Some(device) = opened(AfXdp::open(&config())) else { return };
        assert_eq!(device.mode(), XdpMode::Generic);
        kernel_tcp::exchange(move || Box::new(device), MUCH);
    });
}

/// A network namespace that a process of ours holds.
struct Elsewhere(Child);

impl Elsewhere {
    fn new() -> Self {
        let other = Elsewhere(
            Command::new("unshare")
                .args(["--net", "cat"])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", other.0.id());
        while std::fs::read_link(&theirs).is_ok_and(|there| there == ours) {
            thread::sleep(Duration::from_millis(5));
        }
        other
    }

    /// Runs a command there, and returns whether it succeeded.
    fn run(&self, command: &str) -> bool {
        let pid = self.0.id().to_string();
        let mut inside = Command::new("nsenter");
        inside.args(["-t", &pid, "-n"]).args(command.split(' '));
        inside.output().unwrap().status.success()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Frames of up to three chunks.
#[test]
fn tcp_over_af_xdp_with_frames_larger_than_a_page() {
    inside("af_xdp::tcp_over_af_xdp_with_frames_larger_than_a_page", || {
        veth(1);
        ip("link set lw0 mtu 9000");
        ip("link set lw1 mtu 9000");
        let Some(mut device) = opened(AfXdp::open(&config())) else { return };
        let mac = resolve(&mut device);
        // The last byte in the first chunk, the first one in the next, and so on.
        let about = [3770, 4030, 7600, 8060, 8940].into_iter();
        for len in about.flat_map(|about| about..about + 32) {
            let data: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
            let request = crate::frames::echo_request(mac, OURS, KERNEL, &data);
            send(&mut device, &request, TxChecksum::Complete);
            let reply = receive(&mut device, |b| b[12..14] == [8, 0] && b[23] == 1);
            assert!(reply.bytes[42..] == data, "{len} bytes");
        }
        assert_eq!(device.losses().unwrap(), Losses::default());
        kernel_tcp::exchange(move || Box::new(device), MUCH);
    });
}

#[test]
fn the_kernels_own_network_keeps_working_beside() {
    inside("af_xdp::the_kernels_own_network_keeps_working_beside", || {
        veth(1);
        // The peer is in a namespace of its own; the kernel here has another address than we.
        let peer = Elsewhere::new();
        ip(&format!("link set lw1 netns {}", peer.0.id()));
        for command in [
            "addr add 10.77.0.1/24 dev lw1",
            "addr add fd77::1/64 dev lw1 nodad",
            "link set lw1 up",
        ] {
            assert!(peer.run(&format!("ip {command}")), "{command}");
        }
        ip("addr add 10.77.0.3/24 dev lw0");
        ip("addr add fd77::3/64 dev lw0 nodad");
        ip("link set lw0 up");
        let answers = |address: &str| peer.run(&format!("ping -q -c 2 -i 0.2 -W 1 {address}"));
        let Some(device) = opened(AfXdp::open(&config())) else { return };
        let stop = Stop::new();
        let shard = thread::spawn({
            let stop = stop.clone();
            move || {
                let hardware = device.hardware();
                let config = lightwait_core::Config { hardware, ..kernel_tcp::config() };
                let shard = Shard::new(config, Box::new(device)).unwrap();
                driver::run(&mut [shard], &stop, SPIN).unwrap();
            }
        });
        for address in ["10.77.0.2", "10.77.0.3", "fd77::2", "fd77::3"] {
            assert!((0..5).any(|_| answers(address)), "{address}");
        }
        stop.set();
        shard.join().unwrap();
        assert!(!answers("10.77.0.2") && !answers("fd77::2"), "we are gone");
        assert!(answers("10.77.0.3") && answers("fd77::3"), "the kernel stays");
    });
}

#[test]
fn the_program_goes_with_its_process() {
    const DIES: &str = "LIGHTWAIT_TEST_DIES";
    let test = "af_xdp::the_program_goes_with_its_process";
    inside(test, || {
        let is_attached = || {
            let shown = Command::new("ip").args(["link", "show", "lw0"]).output().unwrap();
            String::from_utf8(shown.stdout).unwrap().contains("xdp")
        };
        if std::env::var_os(DIES).is_some() {
            let device = opened(AfXdp::open(&config()));
            assert!(device.is_none() || is_attached());
            // Nothing is dropped.
            std::process::exit(7);
        }
        veth(1);
        let program = std::env::current_exe().unwrap();
        let dead = Command::new(program).args([test, "--exact"]).env(DIES, "1").status();
        assert_eq!(dead.unwrap().code(), Some(7));
        assert!(!is_attached());
        if let Some(mut device) = opened(AfXdp::open(&config())) {
            the_kernel_answers_an_echo(&mut device);
        }
    });
}

#[test]
fn each_queue_has_a_socket() {
    inside("af_xdp::each_queue_has_a_socket", || {
        veth(3);
        for wrong in [1, 2, 4] {
            let error = AfXdp::open_queues(&config(), wrong).unwrap_err().to_string();
            let advice = format!("ethtool -L lw0 combined {wrong}");
            assert!(error.contains("has 3 receive queue(s)") && error.contains(&advice), "{error}");
        }
        let Some(mut queues) = opened(AfXdp::open_queues(&config(), 3)) else { return };
        // Any queue sends; a frame of the kernel's comes to one of them.
        let end = Moment::now() + Duration::from_secs(10);
        for number in 0..3 {
            let is_reply = |b: &[u8]| (b[12..14] == [8, 6] && b[20..22] == [0, 2]).then_some(());
            loop {
                send(&mut queues[number], &arp(BROADCAST, 1, OURS, KERNEL), TxChecksum::Complete);
                thread::sleep(Duration::from_millis(20));
                if !drain(&mut queues, is_reply).concat().is_empty() {
                    break;
                }
                assert!(Moment::now() < end, "the kernel answers queue {number}");
            }
        }
        ip("neigh replace 10.77.0.2 lladdr 02:00:00:00:00:42 dev lw1");
        knock(OURS.into());
        thread::sleep(Duration::from_millis(50));
        let found = drain(&mut queues, syn);
        assert!(found.iter().filter(|queue| !queue.is_empty()).count() > 1, "{found:?}");
        assert_eq!(found.concat().len(), CONNECTIONS.into(), "each comes once");
    });
}

#[test]
fn more_frames_than_wait_are_sent_in_turn() {
    inside("af_xdp::more_frames_than_wait_are_sent_in_turn", || {
        veth(1);
        let Some(mut device) = opened(AfXdp::open(&config())) else { return };
        let mac = resolve(&mut device);
        // Several times around each ring, with answers.
        for number in 0..20_000_u16 {
            let request = crate::frames::echo_request(mac, OURS, KERNEL, &number.to_be_bytes());
            send(&mut device, &request, TxChecksum::Complete);
            let reply = receive(&mut device, |b| b[12..14] == [8, 0] && b[23] == 1);
            assert_eq!(reply.bytes[42..44], number.to_be_bytes());
        }
        assert_eq!(device.losses().unwrap(), Losses::default());
    });
}

#[test]
fn an_interface_that_af_xdp_cannot_have_is_told() {
    inside("af_xdp::an_interface_that_af_xdp_cannot_have_is_told", || {
        veth(1);
        let error = AfXdp::open(&AfXdpConfig::new("nosuchthing", vec![])).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        ip("link set lw0 mtu 65000");
        let Err(error) = AfXdp::open(&config()) else { panic!("an MTU of 65000") };
        let error = error.to_string();
        let expected = ["CAP_", "sudo ip link set dev lw0 mtu 61418"];
        assert!(expected.iter().any(|text| error.contains(text)), "{error}");
    });
}

#[test]
fn a_missing_capability_is_named() {
    inside_as_user("af_xdp::a_missing_capability_is_named", || {
        veth(1);
        if let Err(error) = AfXdp::open(&config()) {
            let text = error.to_string();
            assert!(text.contains("needs CAP_NET_ADMIN and CAP_BPF"), "{text}");
        }
    });
}

#[test]
fn af_xdp_outlives_its_interface_going_down_and_up() {
    inside("af_xdp::af_xdp_outlives_its_interface_going_down_and_up", || {
        veth(1);
        let Some(mut device) = opened(AfXdp::open(&config())) else { return };
        let (told, heard) = mpsc::channel();
        device = device.on_link(move |state| told.send(state).unwrap());
        the_kernel_answers_an_echo(&mut device);
        ip("link set lw0 down");
        send(&mut device, &arp(BROADCAST, 1, OURS, KERNEL), TxChecksum::Complete);
        assert_eq!(heard.try_recv(), Ok(LinkState::Down));
        ip("link set lw0 up");
        let later = device.deadline().expect("it looks again");
        device.receive(later, 64, &mut |_| ()).unwrap();
        assert_eq!(heard.try_recv(), Ok(LinkState::Up));
        assert!(device.take_link_up());
        the_kernel_answers_an_echo(&mut device);
        ip("link del lw0");
        let mut outbox = Outbox::new(1);
        outbox.push().unwrap().head.extend([0; 60]);
        let error = device.transmit(later, &mut outbox).unwrap_err().to_string();
        assert!(error.contains("the interface `lw0` is gone"), "{error}");
    });
}

#[test]
fn an_idle_socket_notices_an_interface_that_goes() {
    inside("af_xdp::an_idle_socket_notices_an_interface_that_goes", || {
        for mode in [XdpMode::Driver, XdpMode::Generic] {
            veth(1);
            if mode == XdpMode::Generic {
                // A veth refuses a program where the other end may send frames larger than a page.
                ip("link set lw1 mtu 9000");
            }
            let Some(device) = opened(AfXdp::open(&config())) else { return };
            assert_eq!(device.mode(), mode);
            let (told, heard) = mpsc::channel();
            let mut device = device.on_link(move |state| told.send(state).unwrap());
            // It is asked when it says, and has nothing to send.
            let look = |device: &mut AfXdp| {
                let due = device.deadline().expect("it looks again");
                device.receive(due, 64, &mut |_| ())
            };
            look(&mut device).unwrap();
            ip("link set lw0 down");
            look(&mut device).unwrap();
            assert_eq!(heard.try_recv(), Ok(LinkState::Down));
            ip("link set lw0 up");
            look(&mut device).unwrap();
            assert_eq!(heard.try_recv(), Ok(LinkState::Up));
            ip("link del lw0");
            let error = look(&mut device).unwrap_err().to_string();
            assert!(error.contains("the interface `lw0` is gone"), "{error}");
        }
    });
}
