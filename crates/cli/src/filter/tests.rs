use super::*;

const LOCAL: &str = "10.0.0.1:80";

fn has(text: &str, state: State, remote: &str) -> bool {
    let filter = Filter::parse(text, States::USUAL).unwrap();
    filter.has(state, LOCAL.parse().unwrap(), Some(remote.parse().unwrap()))
}

fn error(text: &str) -> String {
    Filter::parse(text, States::USUAL).unwrap_err()
}

#[test]
fn states_are_those_of_ss() {
    let meant = |text: &str| -> Vec<&str> {
        let filter = Filter::parse(text, States::USUAL).unwrap();
        let local = LOCAL.parse().unwrap();
        let all = State::ALL.into_iter().filter(|state| filter.has(*state, local, None));
        all.map(State::name).collect()
    };
    let usual = [
        "SYN-SENT",
        "ESTABLISHED",
        "FIN-WAIT-1",
        "FIN-WAIT-2",
        "CLOSE-WAIT",
        "CLOSING",
        "LAST-ACK",
    ];
    assert_eq!(meant(""), usual);
    assert_eq!(meant("state established"), ["ESTABLISHED"]);
    assert_eq!(meant("state ESTABLISHED state time-wait"), ["ESTABLISHED", "TIME-WAIT"]);
    assert_eq!(meant("state bucket"), ["SYN-RECEIVED", "TIME-WAIT"]);
    assert_eq!(meant("state syn-recv"), meant("state SYN-RECEIVED"));
    assert_eq!(meant("state all").len(), 11);
    assert_eq!(meant("state connected exclude bucket"), usual);
    assert_eq!(meant("exclude connected"), ["CLOSED", "LISTEN"]);
    assert_eq!(meant("state synchronized").len(), meant("state connected").len() - 1);
    assert_eq!(meant("state big").len(), 9);
    assert!(error("state open").contains("established, fin-wait-1"), "{}", error("state open"));
    assert!(error("state").contains("name a state"));
}

#[test]
fn both_ends_are_tested_by_address_and_port() {
    let peers = ["10.1.2.3:5000", "10.2.0.1:443", "[fd00::7]:5000"];
    for (text, meant) in [
        ("dst 10.1.0.0/16", [true, false, false]),
        ("dst = 10.1.2.3", [true, false, false]),
        ("dst != 10.1.2.3", [false, true, true]),
        ("dst 10.0.0.0/8:443", [false, true, false]),
        ("dst :5000", [true, false, true]),
        ("dst *:5000", [true, false, true]),
        ("dst [fd00::]/64", [false, false, true]),
        ("dst [fd00::7]:5000", [false, false, true]),
        ("dst fd00::/64", [false, false, true]),
        ("dst fd00::7", [false, false, true]),
        ("src 10.0.0.1:80", [true; 3]),
        ("src 10.0.0.2", [false; 3]),
        ("sport = :80", [true; 3]),
        ("sport = :443", [false; 3]),
        ("dport = :443", [false, true, false]),
        ("dport 443", [false, true, false]),
        ("dport ne :443", [true, false, true]),
        ("dport>:443", [true, false, true]),
        ("dport >= :443", [true; 3]),
        ("dport<:443", [false; 3]),
        ("dport le :443", [false, true, false]),
        ("not dport = :443", [true, false, true]),
        ("dport = :443 or dst fd00::7", [false, true, true]),
        ("dport = :5000 and dst fd00::7", [false, false, true]),
        ("dport = :5000 dst fd00::7", [false, false, true]),
        ("dport = :443 or dport = :5000 and dst fd00::7", [false, true, true]),
        ("(dport = :443 or dport = :5000) and dst fd00::7", [false, false, true]),
        ("not (dport = :443 or dst fd00::7)", [true, false, false]),
        ("! ! dport = :443", [false, true, false]),
    ] {
        let found = peers.map(|peer| has(text, State::Established, peer));
        assert_eq!(found, meant, "{text}");
    }
    let listener = Filter::parse("dst 10.0.0.0/8", States::ALL).unwrap();
    assert!(!listener.has(State::Listen, LOCAL.parse().unwrap(), None), "it has no peer");
}

#[test]
fn what_is_mistyped_is_said() {
    for (text, part) in [
        ("dport = :https", "is no port: give a number"),
        ("dport = :65536", "is no port"),
        ("dport", "\"\" is no port"),
        ("dst here", "\"here\": give an address, a network"),
        ("dst 10.0.0.0/33", "give an address"),
        ("dst 10.0.0.1:x", "give an address"),
        ("dst", "\"\": give an address"),
        ("dst *", "names every end"),
        ("dst > 10.0.0.1", "by = and != alone"),
        ("( dport = :80", "a `)` is missing"),
        ("dport = :80 )", "a `)` too many"),
        ("dport = :80 or", "ends where a test is expected"),
        ("port = :80", "\"port\": give a test such as dst"),
        ("dport = :80 state established", "states come first"),
        ("established", "\"established\": give a test"),
    ] {
        assert!(error(text).contains(part), "{text}: {}", error(text));
    }
}

#[test]
fn a_filter_has_a_longest_length() {
    let not = |count: usize| format!("{}dport = :1", "! ".repeat(count));
    assert!(has(&not(WORDS_MAX - 4), State::Established, "10.0.0.2:1"));
    assert!(has(&not(WORDS_MAX - 3), State::Established, "10.0.0.2:2"));
    assert!(error(&not(WORDS_MAX - 2)).contains("129 words, and 128 at most"));
    // As many operands as there may be, which wait for their operators.
    let deep =
        |count: usize| format!("{}dport 1{}", "dport 2 or (".repeat(count), ")".repeat(count));
    assert!(has(&deep(25), State::Established, "10.0.0.2:1"));
    assert!(!has(&deep(25), State::Established, "10.0.0.2:3"));
    assert!(error(&deep(26)).contains("132 words"));
    let one = Filter::parse("dport 1", States::USUAL).unwrap();
    let both = one.clone().and(&Filter::parse("sport 80", States::USUAL).unwrap()).unwrap();
    assert!(both.has(
        State::Established,
        LOCAL.parse().unwrap(),
        Some("10.0.0.2:1".parse().unwrap())
    ));
    assert!(!both.has(
        State::Established,
        "10.0.0.1:81".parse().unwrap(),
        "10.0.0.2:1".parse().ok()
    ));
}
