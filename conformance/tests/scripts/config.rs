//! The configuration of a script: its own options, then those of the environment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The IP version of the sockets and of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpMode {
    V4,
    /// IPv6 sockets with mapped addresses, IPv4 packets.
    Mapped,
    V6,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) mode: IpMode,
    pub(crate) bind_port: u16,
    pub(crate) connect_port: u16,
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
    pub(crate) tolerance_usecs: i64,
    pub(crate) tolerance_percent: f64,
    /// An echo of a timestamp that was never sent is computed from the first one.
    pub(crate) scaled_echoes: bool,
    /// Our packets must echo the timestamp that the script says: on in scripts of ours.
    pub(crate) exact_echoes: bool,
    /// The script is one of ours: sockets of datagrams send nothing that it does not expect.
    pub(crate) is_own: bool,
    /// 0: outbound timestamps are not checked.
    pub(crate) stamp_tick_usecs: i64,
    pub(crate) strict_segments: bool,
    pub(crate) is_packet_fatal: bool,
    pub(crate) code_command: String,
    pub(crate) flags: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: IpMode::V4,
            bind_port: 8080,
            connect_port: 8080,
            local: None,
            remote: None,
            tolerance_usecs: 4_000,
            tolerance_percent: 12.5,
            scaled_echoes: false,
            exact_echoes: false,
            is_own: false,
            stamp_tick_usecs: 0,
            strict_segments: false,
            is_packet_fatal: true,
            code_command: "python3".into(),
            flags: None,
        }
    }
}

impl Config {
    /// The defaults, with `options` in order. `number` chooses the local address, which the
    /// original chooses at random.
    ///
    /// # Errors
    ///
    /// An option that does not exist, or a value that it does not take.
    pub(crate) fn new(options: &[(String, Option<String>)], number: u32) -> Result<Self, String> {
        let mut config = Self::default();
        for (name, value) in options {
            config.apply(name, value.as_deref())?;
        }
        if config.local.is_none() {
            let low = number % 0xfffd + 2;
            let [_, _, high_byte, low_byte] = low.to_be_bytes();
            config.local = Some(match config.mode {
                IpMode::V6 => {
                    let host = u16::from_be_bytes([high_byte, low_byte]);
                    Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, host).into()
                }
                _ => Ipv4Addr::new(192, 168, high_byte, low_byte).into(),
            });
        }
        if config.remote.is_none() {
            config.remote = Some(match config.mode {
                IpMode::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
                _ => Ipv4Addr::new(192, 0, 2, 1).into(),
            });
        }
        let is_v6 = config.mode == IpMode::V6;
        if config.local().is_ipv6() != is_v6 || config.remote().is_ipv6() != is_v6 {
            return Err("addresses and IP version do not match".into());
        }
        Ok(config)
    }

    fn apply(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let wanted = || value.ok_or_else(|| format!("option '{name}' requires an argument"));
        let bad = |value: &str| format!("bad --{name}: {value}");
        match name {
            "tcp_ts_ecr_scaled" => self.scaled_echoes = true,
            "strict_segments" => self.strict_segments = true,
            "dry_run" | "is_anyip" | "send_omit_free" | "debug" | "verbose" => {}
            "ip_version" => {
                self.mode = match wanted()? {
                    "ipv4" => IpMode::V4,
                    "ipv4-mapped-ipv6" => IpMode::Mapped,
                    "ipv6" => IpMode::V6,
                    other => return Err(bad(other)),
                }
            }
            "bind_port" => self.bind_port = number(wanted()?).ok_or_else(|| bad("port"))?,
            "connect_port" => self.connect_port = number(wanted()?).ok_or_else(|| bad("port"))?,
            "local_ip" => self.local = Some(address(wanted()?).ok_or_else(|| bad("address"))?),
            "remote_ip" => self.remote = Some(address(wanted()?).ok_or_else(|| bad("address"))?),
            "tolerance_usecs" => {
                self.tolerance_usecs = number(wanted()?).ok_or_else(|| bad("number"))?;
            }
            "tolerance_percent" => {
                self.tolerance_percent = number(wanted()?).ok_or_else(|| bad("number"))?;
            }
            "tcp_ts_tick_usecs" => {
                self.stamp_tick_usecs = number(wanted()?).ok_or_else(|| bad("number"))?;
            }
            "non_fatal" => self.is_packet_fatal = !wanted()?.contains("packet"),
            "code_command" => self.code_command = wanted()?.to_owned(),
            "so_flags" => self.flags = Some(wanted()?.to_owned()),
            // Options for a network that does not exist here, or for another way to run.
            "code_format" | "code_sockopt" | "gateway_ip" | "netmask_ip" | "speed" | "mss"
            | "mtu" | "init_scripts" | "define" | "so_filename" | "wire_client" | "wire_server"
            | "wire_server_at" | "wire_server_ip" | "wire_server_port" | "wire_client_dev"
            | "wire_server_dev" => {}
            other => return Err(format!("option '{other}' unknown")),
        }
        Ok(())
    }

    /// Symbols that packetdrill's own runner defines.
    pub(crate) fn defines(&self) -> Vec<(String, String)> {
        let names = match self.mode {
            IpMode::V6 => [("CMSG_LEVEL_IP", "SOL_IPV6"), ("CMSG_TYPE_RECVERR", "IPV6_RECVERR")],
            _ => [("CMSG_LEVEL_IP", "SOL_IP"), ("CMSG_TYPE_RECVERR", "IP_RECVERR")],
        };
        names.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// More flags for the stack, before its own flags, which win.
    pub(crate) fn add_flags(&mut self, more: &[String]) {
        let own = self.flags.take();
        let (profile, own) = match &own {
            Some(own) => own.split_once(',').unwrap_or((own, "")),
            None => ("", ""),
        };
        let all = std::iter::once(profile).chain(more.iter().map(String::as_str)).chain([own]);
        let all: Vec<&str> = all.filter(|flag| !flag.is_empty()).collect();
        self.flags = (!all.is_empty()).then(|| all.join(","));
    }

    /// The stack's address on the wire.
    pub(crate) fn local(&self) -> IpAddr {
        self.local.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    /// The other end's address on the wire.
    pub(crate) fn remote(&self) -> IpAddr {
        self.remote.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    /// The family of every socket.
    pub(crate) fn domain(&self) -> i32 {
        if self.mode == IpMode::V4 { libc::AF_INET } else { libc::AF_INET6 }
    }

    /// The argument of `bind`.
    pub(crate) fn bind_address(&self) -> SocketAddr {
        SocketAddr::new(self.mapped(self.local()), self.bind_port)
    }

    /// The argument of `connect`.
    pub(crate) fn connect_address(&self) -> SocketAddr {
        SocketAddr::new(self.mapped(self.remote()), self.connect_port)
    }

    fn mapped(&self, address: IpAddr) -> IpAddr {
        match (self.mode, address) {
            (IpMode::Mapped, IpAddr::V4(address)) => address.to_ipv6_mapped().into(),
            (_, address) => address,
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// An address, perhaps with the length of its prefix behind it.
fn address(text: &str) -> Option<IpAddr> {
    text.split('/').next()?.parse().ok()
}
