use clap::Parser;

use std::net::IpAddr;

use lightwait_core::address::Cidr;
use lightwait_core::{Capabilities, Config, Medium};

use super::*;
use crate::args::{Command, CommandLine};

/// File descriptors for connections.
const DESCRIPTORS: u32 = 20_000;

fn plan(line: &str) -> Result<LoadPlan, Failure> {
    let url = "http://127.0.0.1:8080/a?b";
    plan_for(url, line)
}

fn plan_for(url: &str, line: &str) -> Result<LoadPlan, Failure> {
    let words = ["lightwait", "load", url].into_iter().chain(line.split_whitespace());
    match CommandLine::try_parse_from(words).expect(line).command {
        Command::Load(args) => LoadPlan::new(&args, DESCRIPTORS, 0),
        _ => unreachable!("it begins with load"),
    }
}

fn refusal(line: &str) -> String {
    plan(line).map(|_| ()).expect_err(line).to_string()
}

const P: &str = "--ports 32768-60999";

#[test]
fn a_rate_takes_loopback_addresses_by_the_rule() {
    for (rate, addresses) in [("1", 1), ("371", 1), ("372", 2), ("10000", 24), ("100000", 231)] {
        let plan = plan(&format!("--rate {rate} {P}")).unwrap();
        assert_eq!(plan.sources.len(), addresses, "{rate}");
        assert!(plan.sources.nth(0).is_loopback());
    }
    let about = plan(&format!("--rate 10000 {P}")).unwrap().about;
    // No more connections than descriptors: 20,000 at a time, of 2 s on average.
    let formula = "N = ceil(R·(T+L)/P) = ceil(10000/s · (65 s + 2 s) / 28232 ports) = 24";
    assert!(about.contains(formula) && about.starts_with("24 source addresses, 127."), "{about}");
    // A second load does not take the addresses of the first: one chance in 2^24 here.
    let first = |line: &str| plan(line).unwrap().sources.nth(0);
    assert_ne!(first("--rate 1"), first("--rate 1"));
    // Parts must agree, and addresses that are given may have been made for the load.
    for line in ["--rate 4 --part 1/4", "--rate 1 --source 127.0.0.0/8"] {
        assert_eq!(first(line).to_string(), "127.0.0.1", "{line}");
    }
    assert_eq!(plan(&format!("--rate 434 --poisson {P}")).unwrap().sources.len(), 2);
    // Fewer connections need fewer addresses, and so does a shorter TIME-WAIT.
    let of = |line: &str| plan(&format!("{line} {P}")).unwrap().sources.len();
    assert_eq!(of("--rate 10000 --requests-per-connection 10"), 4);
    assert_eq!(of("--rate 10000 --keep-alive"), 1);
    assert_eq!(of("--rate 10000 --time-wait 30s"), 14);
    // A server that stalls holds connections up to the timeout, as many as the load may have.
    assert_eq!(of("--rate 300 --timeout 30s"), 2);
    assert_eq!(of("--rate 300 --timeout 30s --connections 5000"), 1);
    assert_eq!(of("--stage 10s:500 --stage 10s:10000 --stage 10s:0 --warm-up 0"), 24);
}

#[test]
fn too_few_addresses_are_refused_with_the_formula_and_a_remedy() {
    let text = refusal(&format!("--rate 10000 --source 127.1.0.0/29 {P}"));
    for part in [
        "10000 connections/s from 6 source addresses, which allow 2606/s at most",
        "N = ceil(R·(T+L)/P) = ceil(10000/s · (65 s + 2 s) / 28232 ports) = 24",
        "--source 10.1.0.0/27",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // Two cases at the limit: 434 connections a second on one address, 2606 on six.
    assert!(plan(&format!("--rate 434 --source 127.0.0.5 {P}")).is_ok());
    assert!(
        refusal(&format!("--rate 435 --source 127.0.0.5 {P}")).contains("address, which allows")
    );
    assert!(plan(&format!("--rate 2606 --source 127.1.0.0/29 {P}")).is_ok());
    assert!(plan(&format!("--rate 2607 --source 127.1.0.0/29 {P}")).is_err());
    // Between both numbers of the rule there is room for connections that are short enough.
    let room = |line: &str| plan(&format!("{line} {P}")).unwrap().about;
    let text = room("--rate 434 --source 127.0.0.5");
    assert!(
        text.contains("(65 s + 11 s) / 28232 ports) = 2, and there is 1: requests wait"),
        "{text}"
    );
    assert!(text.contains("if connections last 48 ms or more on average"), "{text}");
    assert!(!room("--rate 371 --source 127.0.0.5").contains("there is"));
    // Where R·T/P is whole, one address less has no port for a connection in progress.
    let whole = "--rate 50 --time-wait 1s --ports 6000-6059 --source";
    assert!(
        refusal(&format!("{whole} 127.0.0.1,127.1.1.0/30,127.1.1.4/31")).contains("49/s at most")
    );
    assert!(plan(&format!("{whole} 127.1.1.0/29")).unwrap().sources.len() == 6);
    // The connection that tries the server takes a port as well, which then rests.
    let kept = "--connections 50 --keep-alive --source 127.0.0.1 --ports";
    let text = refusal(&format!("{kept} 2000-2049"));
    assert!(text.contains("take 2 source addresses of 50 ports"), "{text}");
    assert!(plan(&format!("{kept} 2000-2050")).is_ok());
    assert!(plan(&format!("{kept} 2000-2049 --time-wait 0")).is_ok());
}

#[test]
fn what_is_suggested_suffices() {
    for wanted in [1u64, 2, 3, 6, 7, 22, 254, 255, 65_534, 65_535] {
        let one = Sources::new(&["10.0.0.1/32".parse().unwrap()]).unwrap();
        let prefix: Cidr = sources::example(&one, wanted).parse().unwrap();
        let len = Sources::new(&[prefix]).unwrap().len();
        assert!(len >= wanted && len <= 2 * wanted + 4, "{wanted}: {prefix}");
    }
}

#[test]
fn a_closed_loop_takes_addresses_for_any_rate_and_one_if_kept() {
    let addresses = |line: &str| plan(&format!("{line} {P}")).unwrap().sources.len();
    assert_eq!(addresses("--connections 50"), 2303);
    assert_eq!(addresses("--connections 50 --source 127.9.0.0/28"), 14);
    assert_eq!(addresses("--connections 50 --source 127.9.0.0/16"), 2303);
    assert_eq!(addresses("--connections 50 --keep-alive"), 1);
    // 8 ports beside the two connections, each once in 65 s.
    let about = |line: &str| plan(line).unwrap().about;
    let few = about("--connections 2 --ports 5000-5009 --source 127.0.0.9");
    assert!(
        few.contains("4-tuples for 0.12 connections/s, fewer than one a second for each"),
        "{few}"
    );
    let one = about(&format!("--connections 50 --source 127.0.0.9 {P}"));
    assert!(one.ends_with("4-tuples for 433 connections/s"), "{one}");
    let any = about(&format!("--connections 1 {P}"));
    assert!(any.contains("enough for any rate that this loop may reach, 50"), "{any}");
    let conventional = plan(&format!("--connections 50 --time-wait 0 {P}")).unwrap();
    assert_eq!((conventional.rest, conventional.sources.len()), (Duration::ZERO, 1));
    assert!(conventional.about.contains("do not rest"), "{}", conventional.about);
}

#[test]
fn a_warm_up_lasts_one_time_wait_unless_connections_are_kept() {
    let s = Duration::from_secs;
    for (line, warm_up, steady_after) in [
        ("", s(65), s(65)),
        ("--time-wait 5s", s(10), s(10)),
        ("--keep-alive", s(0), s(0)),
        ("--requests-per-connection 5", s(65), s(65)),
        ("--warm-up 0", s(0), s(65)),
    ] {
        let plan = plan(&format!("--rate 5 {line}")).unwrap();
        assert_eq!(plan.engine.warm_up, warm_up, "{line}");
        assert_eq!(plan.setup.steady_after, steady_after, "{line}");
        assert_eq!(plan.engine.duration, s(10), "{line}");
    }
    let staged = plan("--stage 30s:100 --stage 60s:100").unwrap();
    assert_eq!(staged.engine.duration, s(25));
    assert!(refusal("--stage 65s:100").contains("--warm-up"));
}

#[test]
fn wrong_use_is_told_with_the_flag_that_is_wrong() {
    for (line, why) in [
        ("", "--rate R (an open loop), --connections N (a closed one), --trace FILE or --idle N"),
        ("--rate 5 --stack lightwait --ip 10.0.0.2/24", "--ip needs a device: give --tap NAME"),
        ("--rate 5 --duration 0", "--duration 0 would record nothing"),
        ("--rate 5 --stack lightwait --mtu 1400", "--mtu needs a device"),
        ("--rate 5 --stack lightwait --tap t", "--ip A/N"),
        ("--rate 5 --stack lightwait --set rto.flor=30ms", "rto.floor"),
        ("--connections 20001 --stack lightwait", "`ulimit -Hn 20033`"),
        ("--rate 5 --stack kernel --tap t --ip 10.0.0.2/24", "--stack kernel has no device"),
        ("--rate 5 --tap t", "--ip A/N"),
        ("--rate 5 --ip 10.0.0.2/24", "--tap NAME"),
        ("--rate 5 --set rto.floor=30ms", "give --stack lightwait, --tap or --af-packet"),
        ("--rate 5 --source 127.0.0.0/8,127.1.0.0/16", "has addresses of"),
        ("--rate 5 --source fd00::1", "IP version"),
        ("--connections 20001", "`ulimit -Hn 20033`"),
        ("--connections 15000 --idle 5001", "20001 connections: this process may have 20000"),
        ("--idle 20001", "`ulimit -Hn 20033`"),
        ("--rate 5 --body @/no/such/file", "body @/no/such/file: cannot be read"),
        ("--rate 5 --mix /no/such/file", "--mix /no/such/file: cannot be read"),
        ("--trace /no/such/file", "--trace /no/such/file: cannot be read"),
        ("--trace /dev/null", "no request in it"),
        ("--rate 5 --mix /dev/null", "/dev/null: there is no request in it"),
        ("--rate 5 --insecure", "--insecure is for URLs"),
        ("--rate 5 --congestion reno", "--congestion is for our stack"),
        (
            "--rate 5 --stack lightwait --congestion reno --set congestion.algorithm=bbr",
            "--congestion and --set congestion.algorithm set the same knob",
        ),
        ("--rate 5 --close swap", "--close swap takes TIME-WAIT over, which the kernel's stack"),
        (
            "--rate 5 --close negotiate",
            "--close negotiate agrees on who holds TIME-WAIT, which the",
        ),
        ("--rate 5 --method GE/T", "not a method"),
        ("--connections 4 --poisson", "--poisson is for an open loop"),
        ("--connections 4 --burst 5", "--burst is for an open loop"),
        ("--rate 5 --pipeline 4", "give --keep-alive or --requests-per-connection"),
        ("--rate 5 --header connection:close", "by the load itself"),
    ] {
        let text = refusal(line);
        assert!(text.contains(why), "{line}: {text}");
    }
    assert!(plan("--connections 20000").is_ok());
    assert!(plan("--connections 15000 --idle 5000").is_ok());
}

#[test]
fn on_our_stack_its_addresses_are_the_sources() {
    let plan = plan_for("http://10.9.0.1/", "--tap t --ip 10.9.0.2/24 --ip fd00::2/64 --rate 900")
        .unwrap();
    assert_eq!(plan.sources.iter().collect::<Vec<_>>(), ["10.9.0.2".parse::<IpAddr>().unwrap()]);
    assert_eq!(plan.ports, OUR_PORTS);
    assert!(matches!(plan.carrier, Carrier::Device(..)));
    let more = "--tap t --ip 10.9.0.2/24 --rate 1500";
    assert!(plan_for("http://10.9.0.1/", more).unwrap_err().to_string().contains("= 2;"));
    let ranged = plan_for("http://10.9.0.1/", &format!("{more} --source 10.9.1.0/24")).unwrap();
    assert_eq!(ranged.sources.len(), 2);
}

#[test]
fn without_a_device_we_take_the_kernels_sources_and_ports() {
    let line = format!("--rate 10000 {P}");
    let kernels = plan(&line).unwrap();
    let joined = plan(&format!("{line} --stack lightwait")).unwrap();
    assert!(matches!(joined.carrier, Carrier::Joined(_)));
    assert_eq!((joined.sources.len(), &joined.ports), (kernels.sources.len(), &kernels.ports));
    assert!(joined.sources.iter().all(|address| address.is_loopback()));
    assert_eq!(joined.engine.to, kernels.engine.to);
    assert_eq!(joined.setup.stack, "our stack, joined in memory to the kernel's");
    let one = "--rate 435 --stack lightwait --source 127.0.0.5";
    assert!(refusal(&format!("{one} {P}")).contains("= 2;"));
    // The client stack has 65,534 addresses for any part of the load.
    let of = |rate, part| format!("--rate {rate} --stack lightwait --ports 2000-2000{part}");
    assert_eq!(plan(&of(1008, "")).unwrap().sources.len(), 65_534);
    assert!(refusal(&of(1009, "")).contains("from 65534 source addresses"));
    assert_eq!(plan(&of(2016, " --part 2/2")).unwrap().sources.len(), 65_534);
}

#[test]
fn each_way_of_closing_sets_the_knob_it_needs() {
    let values = |knobs: &Knobs| {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let config = knobs.on(Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]));
        let time_wait = config.tcp.time_wait;
        (time_wait.close_swap, format!("{:?}", time_wait.negotiate))
    };
    let knobs = |close: &str| {
        let line = format!("--tap t --ip 10.9.0.2/24 --rate 5 --close {close}");
        let plan = plan_for("http://10.9.0.1/", &line).unwrap();
        let Carrier::Device(on) = plan.carrier else { panic!("{line}") };
        values(&on.1)
    };
    let both = |close: &str| {
        let line = format!("--stack lightwait --rate 5 --close {close}");
        let Carrier::Joined(joined) = plan(&line).unwrap().carrier else { panic!("{line}") };
        (values(&joined.client), values(&joined.server))
    };
    let off = || "Off".to_owned();
    for close in ["server", "client", "client-close"] {
        assert_eq!(knobs(close), (false, off()), "{close}");
    }
    assert_eq!(knobs("swap"), (true, off()));
    assert_eq!(knobs("negotiate"), (false, "Client".to_owned()));
    let plain = || (false, off());
    assert_eq!(both("server"), (plain(), plain()));
    assert_eq!(both("swap"), ((true, off()), plain()));
    let agree = || (false, "Client".to_owned());
    assert_eq!(both("negotiate"), (agree(), agree()));
    let kernels = plan("--rate 5 --close client-close").unwrap();
    assert_eq!(kernels.engine.close, Close::ClientClose);
    let farewell = String::from_utf8(kernels.engine.farewell).unwrap();
    assert!(farewell.contains("\r\nHost: 127.0.0.1:8080\r\n"), "{farewell}");
}

#[test]
fn a_body_makes_it_a_post() {
    let plan = plan("--rate 5 --body x").unwrap();
    assert_eq!(plan.setup.method, "POST");
    let text = String::from_utf8(plan.engine.mix.request(0).keeping().to_vec()).unwrap();
    assert!(text.starts_with("POST /a?b HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"), "{text}");
    assert!(text.ends_with("Content-Length: 1\r\n\r\nx"), "{text}");
}

/// A file with the given contents.
fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

fn texts(plan: &LoadPlan) -> Vec<String> {
    let mix = &plan.engine.mix;
    let text = |number| String::from_utf8(mix.request(number).keeping().to_vec()).unwrap();
    (0..mix.len() as u32).map(text).collect()
}

#[test]
fn a_mix_is_of_a_file_or_built_in_and_below_the_urls_directory() {
    let body = file("contents");
    let path = body.path().display();
    let mix = file(&format!("5 /a\n1 HEAD /b\n1 POST /c @{path}\n1 POST /d d e\n"));
    let plan = plan(&format!("--rate 5 --mix {} -H A:b", mix.path().display())).unwrap();
    let all = texts(&plan);
    assert!(all[0].starts_with("GET /a HTTP/1.1\r\n") && all[0].contains("A: b\r\n"), "{all:?}");
    assert!(plan.engine.mix.request(1).is_head());
    assert!(all[2].ends_with("Content-Length: 8\r\n\r\ncontents"), "{all:?}");
    assert!(all[3].ends_with("\r\n\r\nd e"), "{all:?}");
    assert_eq!(plan.setup.method, "GET, HEAD, POST");
    assert_eq!(plan.setup.mix, Some(mix.path().display().to_string()));
    for (url, mix, count, first) in [
        ("http://127.0.0.1/x/y?z", "webstone", 5, "GET /x/file500.html "),
        ("http://127.0.0.1", "zipf:3", 3, "GET /1 "),
        ("http://127.0.0.1/x/", "zipf:2:0.8", 2, "GET /x/1 "),
    ] {
        let plan = plan_for(url, &format!("--rate 5 --mix {mix}")).unwrap();
        let all = texts(&plan);
        assert!(all.len() == count && all[0].starts_with(first), "{all:?}");
    }
}

#[test]
fn a_trace_has_its_own_times_and_addresses_for_its_busiest() {
    let line = |second: u32, method: &str, rest: &str| {
        format!(
            "::1 - - [01/Jan/2026:00:{:02}:{:02} +0000] \"{method} /{second} HTTP/1.1\" 200 -\
             {rest}\n",
            second / 60,
            second % 60
        )
    };
    let mut text = line(0, "GET", " \"http://r/\" \"agent\"") + &line(0, "POST", "") + "rubbish\n";
    (100..200).for_each(|second| text += &line(second, "GET", "").repeat(30));
    let log = file(&text);
    let flags = "--ports 2000-2099 --warm-up 10s --header user-agent:mine --body b";
    let of = |more: &str| plan(&format!("--trace {} {flags} {more}", log.path().display()));
    let plan = of("").unwrap();
    // 65 s and 11 s at 30 requests a second on 100 ports.
    assert_eq!((plan.sources.len(), plan.setup.rate), (23, Some(30.0)));
    assert_eq!(plan.engine.duration, Duration::from_secs(190));
    let all = texts(&plan);
    assert!(all[0].contains("Referer: http://r/\r\n") && all[0].contains("user-agent: mine"));
    assert!(!all[0].contains("agent\r\nUser") && all[1].ends_with("\r\n\r\nb"), "{all:?}");
    let Mode::Open { arrivals, .. } = &plan.engine.mode else { panic!("an open loop") };
    assert_eq!(arrivals.clone().count(), 3002);
    let fast = of("--trace-speed 4").unwrap();
    assert_eq!(fast.engine.duration, Duration::from_millis(40_000));
    // All 3002 requests come within 65 s: 3002 · 76/65 on 100 ports.
    assert_eq!(fast.sources.len(), 36);
    assert_eq!(of("--time-wait 0").unwrap().sources.len(), 4);
}

#[test]
fn parts_of_a_load_have_all_of_it_together_and_no_tuple_twice() {
    let part = |number, line: &str| plan(&format!("{line} --part {number}/4 {P}"));
    let mut seen = std::collections::HashSet::new();
    for number in 1..=4 {
        let plan = part(number, "--rate 10000 --source 127.7.0.0/27").unwrap();
        assert_eq!(plan.setup.rate, Some(2500.0));
        // ceil(2500/s · (65 s + 8 s) / 28232 ports), with 20,000 descriptors
        assert_eq!(plan.sources.len(), 7);
        assert!(plan.sources.iter().all(|address| seen.insert(address)), "{number}");
        let Mode::Open { arrivals, .. } = plan.engine.mode else { panic!("an open loop") };
        let first: Vec<Duration> = arrivals.take(2).collect();
        let micros = |number: u64| Duration::from_micros(100 * number);
        assert_eq!(first, [micros(number - 1), micros(number + 3)]);
    }
    let ports = |number| part(number, "--rate 400 --source 127.7.0.1").unwrap().ports;
    assert_eq!([1, 2, 4].map(ports), [32768..=39825, 39826..=46883, 53942..=60999]);
    let counts = [1, 2, 3, 4].map(|n| part(n, "--connections 10").unwrap().setup.connections);
    assert_eq!(counts, [2, 3, 2, 3]);
    assert!(part(1, "--connections 3").unwrap_err().to_string().contains("--part"));
    let whole = part(1, "--rate 10000 --source 127.7.0.0/29").unwrap_err().to_string();
    assert!(whole.contains("2500 connections/s from 1 source address"), "{whole}");
}

#[test]
fn https_asks_by_tls_and_may_leave_certificates_unchecked() {
    let of = |url, line| plan_for(url, line).unwrap();
    assert!(of("http://127.0.0.1/", "--rate 5").tls.is_none());
    let plan = of("https://127.0.0.1/", "--rate 5 --insecure");
    assert!(plan.tls.is_some());
    assert_eq!(plan.engine.to.port(), 443);
}

#[test]
fn a_link_local_address_wants_its_interface_but_on_a_device() {
    for url in ["http://[fe80::1]/", "http://[FE80::1]:81/a", "http://[febf::1]/"] {
        let text = plan_for(url, "-c 1").map(|_| ()).expect_err(url).to_string();
        assert!(text.starts_with(url) && text.contains("%25eth0]"), "{text}");
    }
    for (url, line) in [
        ("http://[fe80::1%25lo]/", "-c 1 --source ::1"),
        ("http://[fe80::1]/", "-c 1 --tap lw0 --ip fd00::2/64"),
        ("http://[fec0::1]/", "-c 1 --source ::1"),
    ] {
        if let Err(why) = plan_for(url, line) {
            panic!("{url} {line}: {why}");
        }
    }
}
