//! The command line of `lightwait`: every flag and its help text, in one definition for clap.
//! [`crate::plan`] checks the values.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use hyper::header::HeaderValue;
use lightwait_core::address::Cidr;
use lightwait_core::config::parse_time;
use lightwait_http::{CacheRule, ServerConfig};
use lightwait_netem::LinkConfig;

use crate::load::args::LoadArgs;
use crate::log::{AccessOutput, Level, Requests};
use crate::plan::{
    BasicAuth, Bytes, ErrorPage, Hardware, Memory, PoolPolicy, Ports, SendBuffer, Setting,
    ShardCount, SitePath, Vhost, origin,
};
use crate::serve::admin::AdminAddress;
use crate::ss::SsArgs;
use crate::top::TopArgs;
use crate::trace::TraceArgs;
use crate::tunnel::args::TunnelArgs;
use crate::wan::args::WanArgs;
use crate::zone;

/// A user-level TCP/IP stack, and an HTTP server on it.
#[derive(Clone, Debug, Parser)]
#[command(name = "lightwait", version = env!("LIGHTWAIT_VERSION"), max_term_width = 100)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<ServeArgs>),
    Check(CheckArgs),
    Load(Box<LoadArgs>),
    Wan(Box<WanArgs>),
    Tunnel(Box<TunnelArgs>),
    Ss(SsArgs),
    Top(TopArgs),
    Trace(TraceArgs),
    Knobs(KnobsArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// How many cores to use.
#[derive(Clone, Debug, Args)]
pub(crate) struct ShardArgs {
    /// Use so many cores, each with a shard of the stack: 1 to 64, or auto, as many as there are.
    /// On a device each shard has a queue; limits and memory are divided among them
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Shards")]
    pub(crate) shards: ShardCount,

    /// Whether each of several shards keeps to a core of its own; where there are fewer cores the
    /// kernel chooses
    #[arg(long, value_name = "YES|NO", default_value = "yes", help_heading = "Shards")]
    pub(crate) pin: Pin,
}

/// Whether shards keep to cores of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pin {
    Yes,
    No,
}

/// HTTPS beside HTTP: what the server shows, and where.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TlsArgs {
    /// Serve over TLS as well (HTTP/2 and HTTP/1.1), with the certificate chain in this file, in
    /// PEM, the server's own first. May be repeated, each with its --key: a client gets the first
    /// that is for the name it asks for, or else the first of all. SIGHUP reads the files again
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    pub(crate) cert: Vec<PathBuf>,

    /// The private key of the --cert at the same place, in PEM, without a password
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    pub(crate) key: Vec<PathBuf>,

    /// Serve over TLS as well, with a certificate made for this run, which no client trusts. The
    /// log says its SHA-256
    #[arg(long, help_heading = "HTTPS", conflicts_with_all = ["cert", "key"])]
    pub(crate) self_signed: bool,

    /// The port of HTTPS [default: 443 on a device, 8443 through the bridge]
    #[arg(long, value_name = "PORT", help_heading = "HTTPS")]
    pub(crate) https_port: Option<u16>,

    /// Answer requests without TLS with the same URL over HTTPS alone
    #[arg(long, help_heading = "HTTPS")]
    pub(crate) redirect_https: bool,

    /// Tell browsers to come over HTTPS alone for so many seconds (RFC 6797), in answers over TLS
    #[arg(long, value_name = "SECONDS", help_heading = "HTTPS")]
    pub(crate) hsts: Option<u64>,
}

/// Print what `--set` can set: each knob with the library's default, its unit, its meaning, and the
/// source of the default.
///
/// `serve` begins with other values of those that its flags set, such as buffers.send_size,
/// pool.policy and limits.pages.
#[derive(Clone, Debug, Args)]
pub(crate) struct KnobsArgs {
    /// A knob such as rto.floor or floor, or a group such as time_wait [default: all]
    pub(crate) name: Option<String>,
}

/// Check a configuration file of `serve --config`, and print its faults with their places.
///
/// It opens no device. Relative paths are those from here.
#[derive(Clone, Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file
    pub(crate) file: PathBuf,
}

/// Print a script with which a shell completes our commands and flags.
///
/// bash reads it from ~/.local/share/bash-completion/completions/lightwait, fish from
/// ~/.config/fish/completions/lightwait.fish, zsh from a file _lightwait in a directory of $fpath.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// Print a page of the manual, or write all of them: one for the program, one for each command.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManArgs {
    /// A command such as serve or load-merge, whose page is printed; or a directory for
    /// lightwait.1, lightwait-serve.1 and the others. A new directory is given with a slash, as in
    /// ./man [default: print the program's page]
    #[arg(value_name = "PAGE|DIR")]
    pub(crate) what: Option<PathBuf>,
}

/// The values of `--congestion`.
pub(crate) const CONGESTION: [&str; 4] = ["cubic", "reno", "bbr", "dctcp"];

/// Serve a directory over HTTP, on our own TCP/IP stack.
///
/// Without a device the program uses the built-in bridge: it listens on 127.0.0.1:8080 through the
/// kernel, and passes each connection through a client stack and an in-memory wire to the server
/// stack. It needs no privileges.
///
/// SIGINT (Ctrl-C) and SIGTERM stop the server once responses are finished; a second signal cuts
/// them. SIGHUP opens the log files again, after a rotation has moved them, and reads the
/// certificates and the configuration file again. When it stops, and on SIGUSR1 while it runs, the
/// server prints its counters and how full its pools are (connections, TIME-WAIT, FIN-WAIT-2, …) on
/// standard error; with --json, as an event in the log.
#[derive(Clone, Debug, Args)]
// Without this clap would suggest `-- -1` for `--min-rate -1`.
#[command(allow_negative_numbers = true)]
pub(crate) struct ServeArgs {
    /// The directory to serve
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Take flags from a file of TOML, in which each long flag is a key: max-connections = 10000.
    /// The directory is `dir`, knobs are in the table `set`. A flag on the command line goes before
    /// its key. `lightwait check FILE` checks one
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where the bridge listens on the kernel's stack [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", help_heading = "Bridge", value_parser = zone::parse)]
    pub(crate) listen: Option<SocketAddr>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// With --afxdp: take only TCP to these ports of our addresses, such as 80 or 8000-8099, and
    /// ICMP, and leave all else that comes to them to the kernel [default: take all]
    #[arg(long, value_name = "PORTS", help_heading = "Device", requires = "afxdp")]
    pub(crate) afxdp_ports: Option<Ports>,

    /// The port to serve on [default: 80 on a device, 8080 through the bridge]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    #[command(flatten)]
    pub(crate) shards: ShardArgs,

    /// Set a knob of the stack (through the bridge: of both), such as time_wait.length=30s; may be
    /// repeated. `lightwait knobs` lists them
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,

    /// Memory for connections, their buffers and files in flight, such as 512M or 2G, 4M at least;
    /// the bridge's two stacks have half of it each. At three quarters of it the server stops
    /// reading ahead. At its end the server resets connections whose peers take no data, the
    /// longest stalled first, and closes connections that wait for a request [default: a quarter of
    /// the machine's, 1G at most]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(crate) memory: Option<Memory>,

    /// How large the send buffer of a connection is: los (the data to send until the next file read
    /// is done: Cohen & Cohen 2002), round (the data in flight, and what a round trip may carry),
    /// fixed:BYTES, linux (two windows, never shrinks) or linux:lowat=BYTES [default: los]
    #[arg(long, value_name = "RULE", help_heading = "Limits")]
    pub(crate) send_buffer: Option<SendBuffer>,

    /// The congestion control: cubic (RFC 9438), reno (RFC 5681), bbr (version 3, with pacing), or
    /// dctcp (RFC 8257; in a network of one owner, at both ends). Through the bridge it governs the
    /// wire in memory alone: the kernel sends to clients by its own [default: cubic]
    #[arg(long, value_name = "NAME", value_parser = CONGESTION, help_heading = "Limits")]
    pub(crate) congestion: Option<String>,

    /// Memory for pages and for the bytes charged to them, where that is less than --memory
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(crate) pool: Option<Bytes>,

    /// Which connection gets the next page where pages are short [default: priority]
    #[arg(long, value_name = "POLICY", value_enum, help_heading = "Limits")]
    pub(crate) pool_policy: Option<PoolPolicy>,

    /// Connections at most; the one that waits longest for a request closes for a new one.
    /// Through the bridge, no more than half of the descriptors that kept files leave
    #[arg(long, value_name = "N", default_value_t = ServerConfig::default().max_connections,
        help_heading = "Limits")]
    pub(crate) max_connections: usize,

    /// Connections of one client at most; a client is an IPv4 address or an IPv6 network of 64
    /// bits. Clients on the loopback are not counted
    #[arg(long, value_name = "N", default_value_t = ServerConfig::default().max_client_connections,
        help_heading = "Limits")]
    pub(crate) max_client_connections: usize,

    /// Responses in flight at most; other requests are answered with 503
    #[arg(long, value_name = "N", default_value_t = ServerConfig::default().max_responses,
        help_heading = "Limits")]
    pub(crate) max_responses: usize,

    /// Reset a connection whose peer takes fewer bytes a second than this, over a minute; 0: none.
    /// A peer that takes nothing for 30 s is reset in any case
    #[arg(long, value_name = "BYTES", default_value_t = ServerConfig::default().min_rate_bytes,
        help_heading = "Limits")]
    pub(crate) min_rate: u32,

    /// Which end holds TIME-WAIT: keep, the end that closes first, as in TCP (mostly this one);
    /// negotiate, the clients, if their stacks negotiate it too, as Lightwait's do
    /// (time_wait.negotiate=client); ask-client, the HTTP clients that close first when an answer
    /// asks them to. docs/time-wait.md says what each needs
    #[arg(
        long,
        value_enum,
        value_name = "WHO",
        default_value = "keep",
        help_heading = "TIME-WAIT"
    )]
    pub(crate) time_wait: TimeWaitArg,

    /// With ask-client: the part of TIME-WAIT (limits.time_wait), in percent, from which on every
    /// answer asks, so that clients close kept-alive connections as well; 0: always, 100: when it
    /// is full [default: 80]
    #[arg(long, value_name = "PERCENT", help_heading = "TIME-WAIT",
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) ask_at: Option<u8>,

    /// With ask-client: how long a client may take to close after it has received the answer
    /// [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "TIME-WAIT", value_parser = parse_time)]
    pub(crate) ask_grace: Option<Duration>,

    /// Memory for files that are requested often, each of 128K at most: a part of --memory, given
    /// back where that is short; a quarter of a stack's memory at most, 0: none [default: 64M, or
    /// that quarter]
    #[arg(long, value_name = "BYTES", help_heading = "Files")]
    pub(crate) file_cache: Option<Bytes>,

    /// Longer files that the server keeps open: half of what the process may open at most, 0: none
    /// [default: 512, or that half]
    #[arg(long, value_name = "N", help_heading = "Files")]
    pub(crate) file_cache_open: Option<usize>,

    /// How long the server serves a kept file before it looks its path up again: a request within
    /// that time may get the previous version, whole; 0s: nothing is kept [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Files")]
    pub(crate) file_cache_age: Option<Duration>,

    /// How to read files that are not in the kernel's caches: threads (four), or io-uring (many
    /// reads at a time, which pays on a slow disk)
    #[arg(
        long,
        value_name = "MEANS",
        value_enum,
        default_value = "threads",
        help_heading = "Files"
    )]
    pub(crate) file_io: FileIo,

    /// Delay each read of a file by this time, as a slow disk would: for tests [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Files")]
    pub(crate) file_delay: Option<Duration>,

    /// Do not list directories that have no index
    #[arg(long, help_heading = "Files")]
    pub(crate) no_listing: bool,

    /// Serve and list names that start with a dot, too
    #[arg(long, help_heading = "Files")]
    pub(crate) hidden: bool,

    /// The file to serve for a directory
    #[arg(long, value_name = "NAME", default_value = "index.html", help_heading = "Files")]
    pub(crate) index: String,

    /// Serve this directory to requests for that host, such as example.org=/srv/example; may be
    /// repeated. DIR is for all others. The file cache is divided among all
    #[arg(long, value_name = "HOST=DIR", help_heading = "Files")]
    pub(crate) vhost: Vec<Vhost>,

    /// Serve NAME.br, NAME.zst or NAME.gz in place of NAME to clients that take the coding
    #[arg(long, help_heading = "Files")]
    pub(crate) precompressed: bool,

    /// Compress text of 512 bytes to 1 MiB by brotli or gzip for clients that take one, and keep
    /// the result in the file cache
    #[arg(long, help_heading = "Files")]
    pub(crate) compress: bool,

    /// Ask for a name and a password, over TLS alone, for all files or for those under /PATH. FILE
    /// has lines as `htpasswd -B` writes them. May be repeated: the longest path holds
    #[arg(long, value_name = "[/PATH=]FILE", help_heading = "Files")]
    pub(crate) basic_auth: Vec<BasicAuth>,

    /// How long clients may keep files, such as '*.css=max-age=3600' or
    /// '/assets/*=max-age=31536000, immutable'. A pattern with a slash is one of whole paths. May
    /// be repeated: the first pattern that fits holds
    #[arg(long, value_name = "PATTERN=VALUE", help_heading = "Files")]
    pub(crate) cache_control: Vec<CacheRule>,

    /// The file to serve for a path that names nothing and has no extension, such as index.html: a
    /// page whose script knows the path
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    pub(crate) fallback: Option<SitePath>,

    /// The file to serve in place of our own page about a file (403, 404, 405, 412, 414, 416),
    /// such as 404=404.html; may be repeated
    #[arg(long, value_name = "STATUS=FILE", help_heading = "Files")]
    pub(crate) error_page: Vec<ErrorPage>,

    /// Let scripts of this origin read the files, such as `https://example.org`, or * for all (CORS);
    /// may be repeated
    #[arg(long, value_name = "ORIGIN", help_heading = "Files", value_parser = origin)]
    pub(crate) cors: Vec<HeaderValue>,

    /// Write every frame of the device, or of the bridge's wire, to a pcapng file, a FIFO, or with
    /// - to standard output (the log then goes to standard error). Each shard is an interface in it
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) pcap: Option<PathBuf>,

    /// Keep the capture within this many bytes (K, M, G: 2^10, 2^20, 2^30), 256K at least: when
    /// FILE has half of them it becomes FILE.1, replacing the previous FILE.1, and FILE begins anew
    #[arg(long, value_name = "BYTES", help_heading = "Watching", requires = "pcap")]
    pub(crate) pcap_limit: Option<Bytes>,

    /// Capture only this many bytes of each frame, from its start
    #[arg(long, value_name = "BYTES", help_heading = "Watching", requires = "pcap",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) snaplen: Option<u32>,

    /// Print a line for each frame, with its shard if there are several
    #[arg(long, help_heading = "Watching")]
    pub(crate) trace: bool,

    /// Lose, delay or reorder frames, …, both ways:
    /// loss=1%,reorder=5%,delay=30ms,rate=100Mbit,seed=7. Each of several shards has such a link
    #[arg(long, value_name = "SPEC", help_heading = "Watching")]
    pub(crate) fault: Option<LinkConfig>,

    /// Append the log to a file; SIGHUP opens the file again
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) log: Option<PathBuf>,

    /// Write the request lines elsewhere: append them to a file, which SIGHUP opens again; or to
    /// standard output (-), or to journald (journald, or journald:SOCKET)
    #[arg(long, value_name = "FILE|-|journald", help_heading = "Watching")]
    pub(crate) access_log: Option<AccessOutput>,

    /// The form of the request lines: combined, fields (as by --log-fields), json, or a format with
    /// nginx's variables, such as '$remote_addr [$time_local] "$request" $status $request_time'.
    /// escape=json before it escapes values for JSON. docs/serving.md has the variables
    #[arg(long, value_name = "FORMAT", help_heading = "Watching", conflicts_with = "log_fields")]
    pub(crate) access_log_format: Option<Requests>,

    /// Add fields to each request's line, behind Combined's: the host and port that were asked for,
    /// the time in ms, …
    #[arg(long, help_heading = "Watching", conflicts_with = "json")]
    pub(crate) log_fields: bool,

    /// Log one JSON object a line, for programs
    #[arg(long, help_heading = "Watching")]
    pub(crate) json: bool,

    /// Answer questions about the server by HTTP on the kernel's stack, at an address such as
    /// 127.0.0.1:9100, or at unix:PATH: a live page at /, /metrics for Prometheus, /connections,
    /// /rates, /summary, /capture, /events, /healthz, /readyz, /config; `lightwait ss` and
    /// `lightwait top` use it. It asks for no password: keep it from strangers
    #[arg(long, value_name = "ADDR|unix:PATH", help_heading = "Watching")]
    pub(crate) admin: Option<AdminAddress>,

    /// Log what happens to connections on our stack: limits that were reached (warn), connections
    /// that ended in an error (info), each that is accepted, opened or closed (debug)
    #[arg(
        long,
        value_name = "LEVEL",
        help_heading = "Watching",
        default_value = "off",
        hide_possible_values = true
    )]
    pub(crate) log_level: Level,

    /// Take over from the process that serves with the same PATH, which ends its connections
    /// meanwhile, and let the next process take over here: a socket, for this user alone. No
    /// connection is refused or reset, and no TIME-WAIT forgotten. For the bridge, --tap, --tun and
    /// --af-packet
    #[arg(long, value_name = "PATH", help_heading = "Restarts and sandbox")]
    pub(crate) takeover: Option<PathBuf>,

    /// Whether the server may do no more, once it runs, than it does: files beyond those that the
    /// flags name, programs and most of what changes the machine are out of its reach. What the
    /// kernel cannot forbid is left out, and the log says what holds
    #[arg(
        long,
        value_name = "ON|OFF",
        default_value = "on",
        help_heading = "Restarts and sandbox"
    )]
    pub(crate) sandbox: OnOff,

    /// Log failed connections as well
    #[arg(short, long, action = ArgAction::Count, help_heading = "Watching")]
    pub(crate) verbose: u8,

    /// Do not log requests, except to the file of --access-log
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Watching")]
    pub(crate) quiet: bool,
}

/// Whether something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

/// How to read files from a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileIo {
    Threads,
    IoUring,
}

/// Which end holds TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeWaitArg {
    /// The end that closes first.
    Keep,
    /// The client, by agreement when the connection is opened (a device alone).
    Negotiate,
    /// The client, if it closes first when an answer asks it to.
    AskClient,
}

/// A device, and the addresses of the stack on it.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Run on a TAP interface of this name; the program creates it if it does not exist
    #[arg(long, value_name = "NAME", help_heading = "Device", conflicts_with = "af_packet")]
    pub(crate) tap: Option<String>,

    /// Run on a TUN interface of this name, which carries IP packets without Ethernet; the program
    /// creates it if it does not exist
    #[arg(long, value_name = "NAME", help_heading = "Device",
        conflicts_with_all = ["tap", "af_packet", "afxdp", "macvtap"])]
    pub(crate) tun: Option<String>,

    /// Run on an existing interface, by a packet socket
    #[arg(long, value_name = "IFACE", help_heading = "Device")]
    pub(crate) af_packet: Option<String>,

    /// Run on an existing interface, past the kernel's stack, by AF_XDP: takes what is sent to our
    /// addresses and leaves all else to the kernel. The interface must have as many queues as there
    /// are shards
    #[arg(long, value_name = "IFACE", help_heading = "Device",
        conflicts_with_all = ["tap", "af_packet"])]
    pub(crate) afxdp: Option<String>,

    /// Run on an existing macvtap, which needs no privileges but the right to open its file
    #[arg(long, value_name = "IFACE", help_heading = "Device",
        conflicts_with_all = ["tap", "af_packet", "afxdp"])]
    pub(crate) macvtap: Option<String>,

    /// Our address and its prefix, such as 10.9.0.2/24 or fd00::2/64; may be repeated
    #[arg(long, value_name = "A/N", help_heading = "Device")]
    pub(crate) ip: Vec<Cidr>,

    /// The kernel's address at its end of the TAP or TUN [default: the first of our subnet that is
    /// not ours]
    #[arg(long, value_name = "A/N", help_heading = "Device")]
    pub(crate) host_ip: Vec<Cidr>,

    /// Next hop for destinations that are not on-link; once for each IP version
    #[arg(long, value_name = "A", help_heading = "Device")]
    pub(crate) gateway: Vec<IpAddr>,

    /// Our hardware address, such as 02:00:00:00:00:01; `interface` for that of the
    /// interface itself, where the network lets no other through [default: with --afxdp and
    /// --macvtap that, for they hear no other; else derived from the machine's id,
    /// the interface and our first address, the same each time]
    #[arg(long, value_name = "MAC", help_heading = "Device")]
    pub(crate) mac: Option<Hardware>,

    /// How long to probe the link, at most, for another host with our addresses before the stack
    /// uses them; 7s: as RFC 5227 has it; 0s: do not probe [default: 1.2s on a packet socket, 0s on
    /// a TAP]
    #[arg(long, value_name = "TIME", help_heading = "Device", value_parser = parse_time)]
    pub(crate) probe: Option<Duration>,

    /// Largest IP packet on the TAP or TUN, in bytes [default: 1500]
    #[arg(long, value_name = "BYTES", help_heading = "Device")]
    pub(crate) mtu: Option<u16>,
}

impl DeviceArgs {
    /// True if they name a device.
    pub(crate) fn name_one(&self) -> bool {
        let all = [&self.tap, &self.tun, &self.af_packet, &self.afxdp, &self.macvtap];
        all.into_iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn the_help_names_the_least_amounts() {
        let mut command = CommandLine::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_long_help().to_string();
        let words: Vec<&str> = help.split_whitespace().collect();
        let help = words.join(" ");
        let least = lightwait::wrap::pcap::LEAST_LIMIT >> 10;
        assert!(help.contains("512M or 2G, 4M at least") && "4M".parse::<Memory>().is_ok());
        assert!(help.contains(&format!("2^30), {least}K at least")), "{help}");
    }
}
