use clap::Parser;

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
        Command::Load(args) => LoadPlan::new(&args, DESCRIPTORS),
        _ => unreachable!("it begins with load"),
    }
}

fn refusal(line: &str) -> String {
    plan(line).map(|_| ()).expect_err(line).to_string()
}

const P: &str = "--ports 32768-60999";

#[test]
fn a_rate_takes_as_many_addresses_of_the_loopback_as_the_rule_says() {
    for (rate, addresses) in [("1", 1), ("434", 1), ("435", 2), ("10000", 24), ("100000", 231)] {
        let plan = plan(&format!("--rate {rate} {P}")).unwrap();
        assert_eq!(plan.sources.len(), addresses, "{rate}");
        assert_eq!(plan.sources.nth(0).to_string(), "127.0.0.1");
    }
    let about = plan(&format!("--rate 10000 {P}")).unwrap().about_sources;
    let formula = "ceil(10000/s · 65 s / 28232 ports) = 24";
    assert!(about.contains(formula) && about.contains("127.0.0.1 to 127.0.0.24"), "{about}");
    // Fewer connections take fewer, and less TIME-WAIT does.
    let of = |line: &str| plan(&format!("{line} {P}")).unwrap().sources.len();
    assert_eq!(of("--rate 10000 --requests-per-connection 10"), 3);
    assert_eq!(of("--rate 10000 --keep-alive"), 1);
    assert_eq!(of("--rate 10000 --time-wait 30s"), 13);
    assert_eq!(of("--stage 10s:500 --stage 10s:10000 --stage 10s:0 --warm-up 0"), 24);
}

#[test]
fn too_few_addresses_are_refused_with_the_formula_filled_in_and_a_way_out() {
    let text = refusal(&format!("--rate 10000 --source 127.1.0.0/29 {P}"));
    for part in [
        "10000 connections/s from 6 source addresses, which allow 2606/s",
        "N = ceil(R·T/P) = ceil(10000/s · 65 s / 28232 ports) = 24",
        "--source 10.1.0.0/27",
        "lightwait load --help",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // The twins at the limit: 434 of one address, 2606 of six.
    assert!(plan(&format!("--rate 434 --source 127.0.0.5 {P}")).is_ok());
    assert!(
        refusal(&format!("--rate 435 --source 127.0.0.5 {P}")).contains("address, which allows")
    );
    assert!(plan(&format!("--rate 2606 --source 127.1.0.0/29 {P}")).is_ok());
    assert!(plan(&format!("--rate 2607 --source 127.1.0.0/29 {P}")).is_err());
    let text = refusal("--connections 50 --keep-alive --source 127.0.0.1 --ports 2000-2048");
    assert!(text.contains("take 2 source addresses of 49 ports"), "{text}");
}

#[test]
fn what_is_suggested_suffices() {
    for wanted in [1u64, 2, 3, 6, 7, 22, 254, 255, 65_534, 65_535] {
        let one = Sources::new(&["10.0.0.1/32".parse().unwrap()]).unwrap();
        let prefix: Cidr = example(&one, wanted).parse().unwrap();
        let len = Sources::new(&[prefix]).unwrap().len();
        assert!(len >= wanted && len <= 2 * wanted + 4, "{wanted}: {prefix}");
    }
}

#[test]
fn a_closed_loop_takes_addresses_for_any_rate_and_one_kept_alive_takes_one() {
    let addresses = |line: &str| plan(&format!("{line} {P}")).unwrap().sources.len();
    assert_eq!(addresses("--connections 50"), 231);
    assert_eq!(addresses("--connections 50 --source 127.9.0.0/28"), 14);
    assert_eq!(addresses("--connections 50 --keep-alive"), 1);
}

#[test]
fn a_warm_up_lasts_for_one_time_wait_unless_connections_are_kept() {
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
        ("", "--rate R (an open loop) or --connections N"),
        ("--rate 5 --stack lightwait", "--tap NAME"),
        ("--rate 5 --stack kernel --tap t --ip 10.0.0.2/24", "--stack kernel has no device"),
        ("--rate 5 --tap t", "--ip A/N"),
        ("--rate 5 --ip 10.0.0.2/24", "--tap NAME"),
        ("--rate 5 --set rto.floor=30ms", "--tap"),
        ("--rate 5 --source 127.0.0.0/8,127.1.0.0/16", "has addresses of"),
        ("--rate 5 --source fd00::1", "IP version"),
        ("--connections 20001", "`ulimit -Hn 20033`"),
        ("--rate 5 --body @/no/such/file", "/no/such/file: cannot be read"),
        ("--rate 5 --method GE/T", "not a method"),
        ("--rate 5 --header connection:close", "by the load itself"),
    ] {
        let text = refusal(line);
        assert!(text.contains(why), "{line}: {text}");
    }
    assert!(plan("--connections 20000").is_ok());
}

#[test]
fn on_our_stack_its_addresses_are_the_sources() {
    let plan = plan_for("http://10.9.0.1/", "--tap t --ip 10.9.0.2/24 --ip fd00::2/64 --rate 900")
        .unwrap();
    assert_eq!(plan.sources.iter().collect::<Vec<_>>(), ["10.9.0.2".parse::<IpAddr>().unwrap()]);
    assert_eq!(plan.ports, OUR_PORTS);
    assert!(plan.ours.is_some());
    let more = "--tap t --ip 10.9.0.2/24 --rate 1500";
    assert!(plan_for("http://10.9.0.1/", more).unwrap_err().to_string().contains("= 2;"));
    let ranged = plan_for("http://10.9.0.1/", &format!("{more} --source 10.9.1.0/24")).unwrap();
    assert_eq!(ranged.sources.len(), 2);
}

#[test]
fn a_body_makes_it_a_post() {
    let plan = plan("--rate 5 --body x").unwrap();
    assert_eq!(plan.setup.method, "POST");
    let text = String::from_utf8(plan.engine.request.keeping().to_vec()).unwrap();
    assert!(text.starts_with("POST /a?b HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"), "{text}");
    assert!(text.ends_with("Content-Length: 1\r\n\r\nx"), "{text}");
}
