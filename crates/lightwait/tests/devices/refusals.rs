//! What the kernel refuses is reported with its cause.

use lightwait::device::{AfPacket, Tap, TapConfig};

use crate::namespace::{can_make_tap, inside, ip};

/// The error of a TAP `lw0` with these addresses for the kernel's end; `None` if it opens.
fn refusal(addresses: &[&str], mtu: u16) -> Option<String> {
    let host_addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let config = TapConfig { host_addresses, mtu, ..TapConfig::new("lw0") };
    let error = Tap::open(&config).err()?.to_string();
    assert!(!error.contains("CAP_"), "no privilege is missing: {error}");
    Some(error)
}

fn switch_ipv6(interface: &str, off: &str) {
    let knob = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    std::fs::write(knob, off).unwrap();
}

#[test]
fn ipv6_that_is_switched_off_is_said_to_be() {
    inside("refusals::ipv6_that_is_switched_off_is_said_to_be", || {
        if !can_make_tap() {
            return;
        }
        const BOTH: [&str; 2] = ["10.77.0.1/24", "fd77::1/64"];
        switch_ipv6("default", "1");
        let error = refusal(&BOTH, 1500).unwrap();
        assert!(error.starts_with("IPv6 is switched off on `lw0`"), "{error}");
        assert!(error.contains("sysctl net/ipv6/conf/lw0/disable_ipv6=0"), "{error}");
        assert_eq!(refusal(&BOTH[..1], 1500), None, "IPv4 is on");
        switch_ipv6("default", "0");
        assert_eq!(refusal(&BOTH, 1500), None);
        // An interface that is there has a switch of its own, which the advice names.
        ip("tuntap add dev lw0 mode tap");
        switch_ipv6("lw0", "1");
        assert!(refusal(&BOTH, 1500).is_some());
        switch_ipv6("lw0", "0");
        assert_eq!(refusal(&BOTH, 1500), None);
    });
}

#[test]
fn what_an_interface_cannot_have_is_told() {
    inside("refusals::what_an_interface_cannot_have_is_told", || {
        if !can_make_tap() {
            return;
        }
        assert_eq!(refusal(&["fd77::1/64"], 1280), None);
        let error = refusal(&["fd77::1/64"], 1279).unwrap();
        assert!(error.contains("an MTU below 1280 carries no IPv6"), "{error}");
        let error = refusal(&["ff02::1/64"], 1500).unwrap();
        assert!(error.contains("ff02::1/64"), "{error}");
        let error = refusal(&[], 67).unwrap();
        assert!(error.contains("`lw0` cannot have an MTU of 67"), "{error}");
        ip("tuntap add dev lw0 mode tun");
        assert!(refusal(&[], 1500).unwrap().contains("it is no TAP"));
        ip("link set lo up");
        let error = Tap::open_queues(&TapConfig::new("lo"), 2).unwrap_err().to_string();
        assert!(error.contains("it is no TAP"), "{error}");
        let error = AfPacket::open("a-name-that-is-too-long", true).unwrap_err();
        assert!(error.to_string().contains("no network interface `a-name"), "{error}");
    });
}
