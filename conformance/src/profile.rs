//! Parses `flags` into the engine's configuration and the behaviour of the calls.
//!
//! Flags are separated by commas: a profile (`linux`, `freebsd` or `rfc`), then changes to it, each
//! `name=value` (or a bare name, which stands for `name=on`). Later ones win. A profile is nothing
//! but a set of values: the engine never learns its name.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use lightwait_core::address::Cidr;
use lightwait_core::config::{AckDelay, Estimator, Push, WindowProbe};
use lightwait_core::wire::options::Layout;
use lightwait_core::{Capabilities, Config, Medium};

/// The MTU unless flags say otherwise: Ethernet's.
const MTU: u16 = 1500;

/// The largest unit that the engine hands over where the door cuts it: the largest packet of IPv4.
const SEGMENTATION: u32 = 65_535;

/// Addresses that are ours by default: packetdrill takes its local address out of these at random.
const RANGES: [&str; 2] = ["192.168.0.0/16", "fd3d:fa7b:d17d::/48"];

/// The engine's configuration and the behaviour of its sockets.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The configuration of the engine.
    pub config: Config,
    /// The flags have a `local=`: no address is learnt from packets.
    pub has_local: bool,
    /// The behaviour of the calls where systems differ.
    pub calls: Calls,
}

/// The differences between the calls of two systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// `accept` gives the new socket the listener's O_NONBLOCK.
    pub accept_inherits_nonblock: bool,
    /// SO_RCVBUF before it is set.
    pub receive_buffer_bytes: u32,
    /// SO_SNDBUF before it is set.
    pub send_buffer_bytes: u32,
    /// A reset after the peer's FIN is a broken pipe, not a reset.
    pub reset_after_fin_breaks_pipe: bool,
    /// A connection's buffers that were not set grow to a multiple of its MSS.
    pub rounds_buffers: bool,
    /// SO_RCVBUF and SO_SNDBUF report twice the value that was set, half being for overhead.
    pub doubles_buffers: bool,
}

impl Profile {
    /// Reads `flags`. An empty text is the `linux` profile.
    ///
    /// The flag that makes no sense.
    /// Which flag makes no sense.
    pub fn parse(flags: &str) -> Result<Profile, String> {
        let mut profile = Profile::linux();
        let flags = flags.split(',').map(str::trim).filter(|flag| !flag.is_empty());
        for flag in flags {
            match flag {
                "linux" => profile = Profile::linux(),
                "freebsd" => profile = Profile::freebsd(),
                "rfc" => profile = Profile::rfc(),
                _ => {
                    let (name, value) = flag.split_once('=').unwrap_or((flag, "on"));
                    profile
                        .set(name.trim(), value.trim())
                        .map_err(|why| format!("flag `{flag}`: {why}"))?;
                }
            }
        }
        Ok(profile)
    }

    fn plain() -> Profile {
        let device = Capabilities::plain(Medium::Ip, MTU);
        let ranges = RANGES.map(str::parse);
        let mut config = Config::new(device, any(), [0x5a; 32]);
        config.addresses.clear();
        config.ranges = ranges.into_iter().flatten().collect();
        // Scripts wait for the replies that they expect, so no limit may hold replies back.
        config.limits.replies_per_second = 100_000;
        Profile {
            config,
            has_local: false,
            calls: Calls {
                accept_inherits_nonblock: false,
                receive_buffer_bytes: 131_072,
                send_buffer_bytes: 87_040,
                reset_after_fin_breaks_pipe: true,
                rounds_buffers: false,
                doubles_buffers: true,
            },
        }
    }

    /// The behaviour of Linux.
    pub fn linux() -> Profile {
        let mut profile = Profile::plain();
        profile.cut_at_device(SEGMENTATION);
        let tcp = &mut profile.config.tcp;
        tcp.quirks.syn_layout = Layout::ScaleLast;
        tcp.quirks.window_shift = Some(8);
        tcp.quirks.push = Push::Burst;
        tcp.quirks.window_probe = WindowProbe::Empty;
        tcp.quirks.missing_timestamps = true;
        tcp.buffers.receive_max = 15_728_640;
        tcp.buffers.receive = 65_535;
        tcp.rto.estimator = Estimator::Rfc6298;
        tcp.rto.floor = Duration::from_millis(200);
        tcp.ack.delay = AckDelay::Timer;
        tcp.ack.timer = Duration::from_millis(40);
        tcp.rto.max = Duration::from_secs(120);
        tcp.timeout.open = Duration::from_secs(127);
        profile
    }

    /// The behaviour of FreeBSD.
    pub fn freebsd() -> Profile {
        let mut profile = Profile::plain();
        let tcp = &mut profile.config.tcp;
        tcp.quirks.syn_layout = Layout::ScaleFirst;
        tcp.quirks.window_shift = Some(6);
        tcp.buffers.receive_max = 2 << 20;
        tcp.buffers.receive = 65_536;
        tcp.quirks.window_in_segments = true;
        tcp.timeout.open = Duration::from_secs(75);
        tcp.rto.estimator = Estimator::Rfc6298;
        tcp.rto.floor = Duration::from_millis(200);
        tcp.ack.delay = AckDelay::Timer;
        tcp.ack.timer = Duration::from_millis(40);
        tcp.ack.quick = 0;
        tcp.quirks.repeat_fin = true;
        tcp.quirks.unannounced_window = true;
        profile.calls = Calls {
            accept_inherits_nonblock: true,
            receive_buffer_bytes: 65_536,
            send_buffer_bytes: 32_768,
            reset_after_fin_breaks_pipe: false,
            rounds_buffers: true,
            doubles_buffers: false,
        };
        profile
    }

    /// The RFCs' behaviour: every knob of TCP at the engine's default.
    pub fn rfc() -> Profile {
        let mut profile = Profile::plain();
        profile.calls.reset_after_fin_breaks_pipe = false;
        profile.calls.doubles_buffers = false;
        profile
    }

    /// The engine hands over segments of that size, and the door cuts them; 0: it cuts itself.
    fn cut_at_device(&mut self, bytes: u32) {
        self.config.device.segmentation = bytes;
        self.config.device.checksum = bytes > 0;
    }

    /// Applies one flag.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let config = &mut self.config;
        match name {
            "segmentation" => {
                let bytes = parse(value)?;
                self.cut_at_device(bytes);
            }
            "local" => {
                let address: IpAddr = parse(value)?;
                let full = if address.is_ipv4() { 32 } else { 128 };
                config.addresses.extend(Cidr::new(address, full));
                self.has_local = true;
            }
            "range" => config.ranges.push(parse(value)?),
            "mtu" => config.device.mtu = parse(value)?,
            "hop_limit" => config.hop_limit = parse(value)?,
            "seed" => {
                let seed: u64 = parse(value)?;
                config.secret[..8].copy_from_slice(&seed.to_le_bytes());
            }
            _ => return config.set(name, value).map_err(|error| error.to_string()),
        }
        Ok(())
    }
}

fn parse<T: FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` is no value for it"))
}

/// A placeholder, removed again: a configuration begins with an address.
fn any() -> Cidr {
    RANGES[0].parse().unwrap_or_else(|_| unreachable!("a constant"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_comes_first_and_changes_after_it() {
        let profile = Profile::parse("freebsd, mtu=1400 ,local=10.0.0.1,local=fd00::1").unwrap();
        assert_eq!(profile.config.tcp.buffers.receive, 65_536);
        assert_eq!(profile.config.device.mtu, 1400);
        let addresses: Vec<String> =
            profile.config.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1/32", "fd00::1/128"]);
        assert!(profile.has_local);
        assert!(!Profile::parse("").unwrap().has_local);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for flags in ["linus", "linux,mtu=big", "local=here", "mtu", "=3"] {
            let error = Profile::parse(flags).unwrap_err();
            assert!(error.starts_with("flag `"), "{flags}: {error}");
        }
    }
}
