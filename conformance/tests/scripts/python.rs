//! The Python snippets of scripts. At a snippet's time the runner writes the answer of `getsockopt`
//! down as assignments, and at the end it runs all of them as one program.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use crate::system::getsockopt;

const PREAMBLE: &str = "\
import sys
import traceback
def excepthook(etype, value, tb):
  sys.stderr.write(\"%s:%d: error in Python code\\n\" % (_file, _line))
  traceback.print_exception(etype, value, tb)

sys.excepthook = excepthook

";

/// Linux's names for the values of some fields.
const SYMBOLS: &[(&str, u64)] = &[
    ("TCP_ESTABLISHED", 1),
    ("TCP_SYN_SENT", 2),
    ("TCP_SYN_RECV", 3),
    ("TCP_FIN_WAIT1", 4),
    ("TCP_FIN_WAIT2", 5),
    ("TCP_TIME_WAIT", 6),
    ("TCP_CLOSE", 7),
    ("TCP_CLOSE_WAIT", 8),
    ("TCP_LAST_ACK", 9),
    ("TCP_LISTEN", 10),
    ("TCP_CLOSING", 11),
    ("TCP_CA_Open", 0),
    ("TCP_CA_Disorder", 1),
    ("TCP_CA_CWR", 2),
    ("TCP_CA_Recovery", 3),
    ("TCP_CA_Loss", 4),
    ("TCPI_OPT_TIMESTAMPS", 1),
    ("TCPI_OPT_SACK", 2),
    ("TCPI_OPT_WSCALE", 4),
    ("TCPI_OPT_ECN", 8),
    ("TCPI_OPT_SYN_DATA", 32),
];

/// Fields of `struct tcp_info`: name, offset and width in bytes.
const TCP_INFO: &[(&str, usize, usize)] = &[
    ("tcpi_state", 0, 1),
    ("tcpi_ca_state", 1, 1),
    ("tcpi_retransmits", 2, 1),
    ("tcpi_probes", 3, 1),
    ("tcpi_backoff", 4, 1),
    ("tcpi_options", 5, 1),
    ("tcpi_rto", 8, 4),
    ("tcpi_ato", 12, 4),
    ("tcpi_snd_mss", 16, 4),
    ("tcpi_rcv_mss", 20, 4),
    ("tcpi_unacked", 24, 4),
    ("tcpi_sacked", 28, 4),
    ("tcpi_lost", 32, 4),
    ("tcpi_retrans", 36, 4),
    ("tcpi_fackets", 40, 4),
    ("tcpi_last_data_sent", 44, 4),
    ("tcpi_last_ack_sent", 48, 4),
    ("tcpi_last_data_recv", 52, 4),
    ("tcpi_last_ack_recv", 56, 4),
    ("tcpi_pmtu", 60, 4),
    ("tcpi_rcv_ssthresh", 64, 4),
    ("tcpi_rtt", 68, 4),
    ("tcpi_rttvar", 72, 4),
    ("tcpi_snd_ssthresh", 76, 4),
    ("tcpi_snd_cwnd", 80, 4),
    ("tcpi_advmss", 84, 4),
    ("tcpi_reordering", 88, 4),
    ("tcpi_rcv_rtt", 92, 4),
    ("tcpi_rcv_space", 96, 4),
    ("tcpi_total_retrans", 100, 4),
    ("tcpi_pacing_rate", 104, 8),
    ("tcpi_max_pacing_rate", 112, 8),
    ("tcpi_bytes_acked", 120, 8),
    ("tcpi_bytes_received", 128, 8),
    ("tcpi_segs_out", 136, 4),
    ("tcpi_segs_in", 140, 4),
    ("tcpi_notsent_bytes", 144, 4),
    ("tcpi_min_rtt", 148, 4),
    ("tcpi_data_segs_in", 152, 4),
    ("tcpi_data_segs_out", 156, 4),
    ("tcpi_delivery_rate", 160, 8),
    ("tcpi_busy_time", 168, 8),
    ("tcpi_rwnd_limited", 176, 8),
    ("tcpi_sndbuf_limited", 184, 8),
    ("tcpi_delivered", 192, 4),
    ("tcpi_delivered_ce", 196, 4),
    ("tcpi_bytes_sent", 200, 8),
    ("tcpi_bytes_retrans", 208, 8),
    ("tcpi_dsack_dups", 216, 4),
    ("tcpi_reord_seen", 220, 4),
    ("tcpi_rcv_ooopack", 224, 4),
    ("tcpi_snd_wnd", 228, 4),
    ("tcpi_rcv_wnd", 232, 4),
    ("tcpi_rehash", 236, 4),
    ("tcpi_total_rto", 240, 2),
    ("tcpi_total_rto_recoveries", 242, 2),
    ("tcpi_total_rto_time", 244, 4),
];

/// The length of `struct tcp_info`; the original dies of a shorter answer.
const TCP_INFO_BYTES: usize = 248;

/// The fields that a congestion control may report, by the least length of its answer.
const CC_INFO: &[(&str, usize, usize, usize)] = &[
    ("bbr_bw_lo", 0, 4, 20),
    ("bbr_bw_hi", 4, 4, 20),
    ("bbr_bw", 0, 8, 20),
    ("bbr_min_rtt", 8, 4, 20),
    ("bbr_pacing_gain", 12, 4, 20),
    ("bbr_cwnd_gain", 16, 4, 20),
    ("dctcp_enabled", 0, 2, 16),
    ("dctcp_ce_state", 2, 2, 16),
    ("dctcp_alpha", 4, 4, 16),
    ("dctcp_ab_ecn", 8, 4, 16),
    ("dctcp_ab_tot", 12, 4, 16),
    ("tcpv_enabled", 0, 4, 16),
    ("tcpv_rttcnt", 4, 4, 16),
    ("tcp_rtt", 8, 4, 16),
    ("tcp_minrtt", 12, 4, 16),
];
const CC_INFO_BYTES: usize = 20;
const TCP_CC_INFO: i32 = 26;

const MEMINFO: &[&str] = &[
    "SK_MEMINFO_RMEM_ALLOC",
    "SK_MEMINFO_RCVBUF",
    "SK_MEMINFO_WMEM_ALLOC",
    "SK_MEMINFO_SNDBUF",
    "SK_MEMINFO_FWD_ALLOC",
    "SK_MEMINFO_WMEM_QUEUED",
    "SK_MEMINFO_OPTMEM",
    "SK_MEMINFO_BACKLOG",
    "SK_MEMINFO_DROPS",
];

/// The program so far.
#[derive(Default)]
pub(crate) struct Code {
    text: String,
}

impl Code {
    /// Write down the current values of the socket `fd`, and the snippet after them.
    pub(crate) fn collect(
        &mut self,
        fd: Option<i32>,
        path: &str,
        line: usize,
        snippet: &str,
    ) -> Result<(), String> {
        let fd = fd.ok_or("no socket to use for code")?;
        let ask = |level, name, length, what: &str| {
            getsockopt(fd, level, name, length).map_err(|error| format!("{what}: {error}"))
        };
        let info = ask(libc::IPPROTO_TCP, libc::TCP_INFO, TCP_INFO_BYTES, "TCP_INFO")?;
        if info.len() < TCP_INFO_BYTES {
            return Err(format!("TCP_INFO of {} bytes, {TCP_INFO_BYTES} wanted", info.len()));
        }
        for (name, value) in SYMBOLS {
            self.assign(name, *value);
        }
        for (name, at, width) in TCP_INFO {
            self.assign(name, number(&info[*at..at + width]));
        }
        self.assign("tcpi_snd_wscale", u64::from(info[6] & 15));
        self.assign("tcpi_rcv_wscale", u64::from(info[6] >> 4));
        self.assign("tcpi_delivery_rate_app_limited", u64::from(info[7] & 1));
        let cc = ask(libc::IPPROTO_TCP, TCP_CC_INFO, CC_INFO_BYTES, "TCP_CC_INFO")?;
        for (name, at, width, least) in CC_INFO {
            if cc.len() >= *least {
                self.assign(name, number(&cc[*at..at + width]));
            }
        }
        let memory = ask(libc::SOL_SOCKET, libc::SO_MEMINFO, MEMINFO.len() * 4, "SO_MEMINFO")?;
        for (index, name) in MEMINFO.iter().enumerate() {
            let bytes = memory.get(index * 4..index * 4 + 4).ok_or("SO_MEMINFO too short")?;
            self.assign(name, number(bytes));
        }
        let _ = write!(self.text, "\n_file = '{path}'\n_line = {line}\n{snippet}\n\n");
        Ok(())
    }

    fn assign(&mut self, name: &str, value: u64) {
        let _ = writeln!(self.text, "{name} = {value}");
    }

    /// Run all snippets, if there are any.
    pub(crate) fn execute(&self, command: &str) -> Result<(), String> {
        if self.text.is_empty() {
            return Ok(());
        }
        let mut file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        let written = write!(file, "{PREAMBLE}{}", self.text).and_then(|()| file.flush());
        written.map_err(|error| format!("writing Python code: {error}"))?;
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("{command} {}", file.path().display()))
            .status()
            .map_err(|error| format!("running '{command}': {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("'{command}' ended with {status}")) }
    }
}

/// A number in the machine's own byte order.
fn number(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(eight)
}
