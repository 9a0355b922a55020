//! Every failure of the program, with a text for people: what failed, where, and how to mend it.

use std::error::Error as _;
use std::io::Write;
use std::net::{AddrParseError, SocketAddr};
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::process::ExitCode;
use std::{fmt, io};

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use lightwait::device::KernelAddress;
use lightwait_core::ip::conflict::Conflict;

use crate::args::CommandLine;
use crate::doors::DoorError;
use crate::serve::admin::AdminAddress;
use crate::zone::Named;

/// Why the program ends without having done its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong; the text is one line.
    Usage(String),
    /// A configuration file is wrong: a line for each fault.
    Config(String),
    /// A load cannot be put on; the text says what to do.
    Load(String),
    /// The server of a load cannot be reached at one of its addresses.
    Unreachable(String),
    /// There is no knob of that name; the text says what is nearest.
    Knob(String, String),
    /// The directory cannot be served.
    Directory(PathBuf, io::Error),
    /// The file of that flag, which stands for others, is not there.
    Page(&'static str, PathBuf),
    /// A certificate or a key does not serve; the text says why.
    Certificate(PathBuf, String),
    /// The kernel does not let us have io_uring.
    Uring(io::Error),
    /// The kernel does not let us listen there.
    Listen(SocketAddr, io::Error),
    /// The admin door cannot be opened there.
    Admin(AdminAddress, io::Error),
    /// The admin door of that name gave no answer.
    Door(String, DoorError),
    /// The device cannot be opened; its own text says what to do.
    Device(String, io::Error),
    /// No other process can take over there, or this one cannot from another.
    Takeover(PathBuf, String),
    /// The kernel's own stack has the address.
    KernelAddress(KernelAddress),
    /// Another interface has the address that the kernel's end of a TAP would have.
    HostAddress(KernelAddress),
    /// Another host on the link has the address, or claims it.
    Conflict(Conflict),
    /// A file cannot be read, or is not what it should be; the text says why.
    Input(PathBuf, String),
    /// A file cannot be written.
    Output(PathBuf, io::Error),
    /// The delay router's device failed.
    Router(io::Error),
    /// The stack cannot be started, or its device failed.
    Stack(io::Error),
}

impl Failure {
    /// 2 for a bad command line, 1 for everything else.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_)
            | Failure::Config(_)
            | Failure::Knob(..)
            | Failure::Door(_, DoorError::Refused(_)) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// The advice to see the help of the command that `words` name, for a bad command line.
    pub(crate) fn advice<W: AsRef<str>>(&self, words: impl IntoIterator<Item = W>) -> String {
        match self {
            Failure::Usage(_) => format!(" (see `{} --help`)", command_name(words)),
            _ => String::new(),
        }
    }
}

/// The kernel has refused something that a stack needs.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Stack(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text)
            | Failure::Config(text)
            | Failure::Load(text)
            | Failure::Unreachable(text) => f.write_str(text),
            Failure::Knob(name, nearest) => {
                write!(f, "there is no knob and no group {name:?}; {nearest}")
            }
            Failure::Directory(path, error) => {
                let path = path.display();
                match error.kind() {
                    io::ErrorKind::NotFound => {
                        write!(f, "{path}: no such directory; name one that exists")
                    }
                    io::ErrorKind::NotADirectory => {
                        write!(f, "{path}: not a directory; name the one that holds it")
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(f, "{path}: no permission to read it; see `ls -ld {path}`")
                    }
                    _ => write!(f, "{path}: {error}"),
                }
            }
            Failure::Page(flag, path) => {
                write!(
                    f,
                    "{flag}: there is no file {}; give its path in the directory",
                    path.display()
                )
            }
            Failure::Certificate(path, why) => write!(f, "{}: {why}", path.display()),
            Failure::Uring(error) => {
                write!(f, "--file-io io-uring: {error}; --file-io threads needs nothing")
            }
            Failure::Listen(address, error) => listen(f, *address, error),
            Failure::Admin(address, error) => admin(f, address, error),
            Failure::Door(name, error) => write!(f, "{name}: {error}"),
            Failure::Device(name, error) => write!(f, "{name}: {error}"),
            Failure::Takeover(path, why) => write!(f, "--takeover {}: {why}", path.display()),
            Failure::KernelAddress(KernelAddress { address, interface }) => write!(
                f,
                "--ip {}: the kernel itself has this address, on {interface}; choose another, or \
                 take it from the kernel: `sudo ip addr del {address} dev {interface}`",
                address.address(),
            ),
            Failure::HostAddress(KernelAddress { address, interface }) => write!(
                f,
                "--host-ip {address}: the kernel has this address on {interface} already, and \
                 would look for the stack there; give --ip in a subnet of its own"
            ),
            Failure::Conflict(Conflict { address, claimant, .. }) => write!(
                f,
                "--ip {address}: the host with hardware address {} has this address, or asks for \
                 it, too; choose another, or see to that host first",
                mac(*claimant),
            ),
            Failure::Input(path, why) => write!(f, "{}: {why}", path.display()),
            Failure::Output(path, error) => {
                write!(f, "{}: cannot be written: {error}", path.display())
            }
            Failure::Router(error) => write!(f, "the router stopped: {error}"),
            Failure::Stack(error) => write!(f, "the stack stopped: {error}"),
        }
    }
}

/// The command that the words begin with, such as `lightwait load merge`.
fn command_name<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let mut command = CommandLine::command();
    let mut name = command.get_name().to_owned();
    for word in words {
        let Some(inner) = command.find_subcommand(word.as_ref()) else { break };
        name = format!("{name} {}", inner.get_name());
        command = inner.clone();
    }
    name
}

/// Writes to standard output. A reader may close it before the end.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_part(text).map(|_is_read| ())
}

/// Writes a part of more to standard output. Returns false if its reader has closed it: the rest
/// need not be made.
pub(crate) fn print_part(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    // The standard library flushes at the end, too, but tells nobody that it failed.
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let is_read = written.is_ok();
    is_written(written).map(|()| is_read)
}

/// A failed write to standard output is a failure, unless its reader has closed it.
pub(crate) fn is_written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Output("standard output".into(), error))
        }
        _ => Ok(()),
    }
}

/// A hardware address, as `ip` shows it.
pub(crate) fn mac(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}

fn listen(f: &mut fmt::Formatter<'_>, address: SocketAddr, error: &io::Error) -> fmt::Result {
    let port = address.port();
    let at = |port| {
        let mut other = address;
        other.set_port(port);
        Named(other)
    };
    let address = Named(address);
    match error.kind() {
        io::ErrorKind::AddrInUse => write!(
            f,
            "{address}: the port is taken; choose another, such as --listen {}, or see who has it: \
             `ss -ltnp sport = :{port}`",
            at(port.checked_add(1).unwrap_or(8080)),
        ),
        io::ErrorKind::PermissionDenied => write!(
            f,
            "{address}: ports below 1024 need CAP_NET_BIND_SERVICE; choose another, such as \
             --listen {}",
            at(8080),
        ),
        io::ErrorKind::AddrNotAvailable => {
            write!(f, "{address}: not an address of this machine; `ip addr` shows those that are")
        }
        _ => write!(f, "{address}: cannot listen: {error}"),
    }
}

fn admin(f: &mut fmt::Formatter<'_>, address: &AdminAddress, error: &io::Error) -> fmt::Result {
    match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, AdminAddress::Tcp(at)) => write!(
            f,
            "--admin {}: the port is taken; choose another, or see who has it: `ss -ltnp sport = \
             :{}`",
            Named(*at),
            at.port(),
        ),
        (io::ErrorKind::AddrInUse, AdminAddress::Unix(path)) => write!(
            f,
            "--admin {address}: a file or another program's socket is there; choose another path, \
             or remove it: `rm {}`",
            path.display(),
        ),
        (_, AdminAddress::Tcp(at)) => write!(f, "--admin {}: {error}", Named(*at)),
        (_, AdminAddress::Unix(_)) => write!(f, "--admin {address}: {error}"),
    }
}

/// clap's complaint about a command line, as one line.
pub(crate) fn usage_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "say what to do: `lightwait serve` serves this directory, `lightwait load URL` \
                puts load on a server, `lightwait wan A B` delays what passes between two devices"
            .to_owned();
    }
    if error.kind() == ErrorKind::ArgumentConflict
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
    {
        // clap takes the second word that is no flag for a command, and `load` alone has one.
        return format!("unexpected argument '{word}': give one URL, or `merge` before all flags");
    }
    let text = in_our_words(error);
    let body = text.split("\n\nUsage:").next().unwrap_or(&text);
    let words: Vec<&str> = body.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    // Nobody means a flag as a value.
    let cut = line.find(" tip: to pass '").or_else(|| line.find(" For more information, try"));
    let line = line[..cut.unwrap_or(line.len())].trim_end();
    // A tip is a sentence of its own.
    match line.split_once(" tip: ") {
        Some((complaint, tip)) => {
            let (first, rest) = tip.split_at(tip.chars().next().map_or(0, char::len_utf8));
            format!("{complaint}. {}{rest}", first.to_uppercase())
        }
        None => line.to_owned(),
    }
}

/// clap's complaint, with our words where it has those of the standard library, which say nothing
/// of what is expected.
fn in_our_words(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let Some(cause) = error.source() else { return text };
    let ours = match cause.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow) => "this number is too large",
        Some(_) => "give a whole number",
        None if cause.is::<AddrParseError>() => "give an IP address, such as 10.9.0.1 or fd00::1",
        None => return text,
    };
    text.replacen(&cause.to_string(), ours, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn line(words: &str) -> String {
        let words = std::iter::once("lightwait").chain(words.split_whitespace());
        usage_line(&CommandLine::try_parse_from(words).unwrap_err())
    }

    #[test]
    fn a_bad_command_line_is_one_line_that_helps() {
        for (words, help) in [
            ("serve --tapp t", "--tap"),
            ("serve --ip 10.0.0.2", "such as 10.9.0.2/24"),
            ("serve --listen 8080", "'8080'"),
            ("serve --listen host:80", "such as 127.0.0.1:8080 or [::1]:8080"),
            ("serve --listen [::1%no-such]:80", "no interface no-such"),
            ("serve --port x", "'--port <PORT>': give a whole number"),
            ("serve --max-connections -1", "give a whole number"),
            ("serve --max-responses 99999999999999999999", "this number is too large"),
            ("serve --ask-at x", "give a whole number"),
            ("serve --gateway host", "such as 10.9.0.1 or fd00::1"),
            ("load http://h/ -c x", "give a whole number"),
            ("serve --fault loss=2", "loss=2"),
            ("serve --tap a --af-packet b", "cannot be used with"),
            ("serve --port 70000", "65535"),
            ("serve --min-rate -1", "invalid value '-1' for '--min-rate"),
            ("serve a b", "unexpected argument 'b'"),
            ("load --json merge a.json", "'a.json': give one URL, or `merge` before all flags"),
            ("load http://h/ http://i/", "'http://i/': give one URL"),
            ("load http://h/ merge", "'merge': give one URL"),
            ("load http://h/ --rps 5", "unexpected argument '--rps' found"),
            ("server", "'server'. A similar subcommand exists: 'serve'"),
            ("", "serve"),
        ] {
            let line = line(words);
            assert!(!line.contains('\n') && line.contains(help), "{words}: {line}");
            let std = ["invalid digit", "address syntax", "too large to fit"];
            for noise in std.into_iter().chain(["error: ", "For more information", "value, use"]) {
                assert!(!line.contains(noise), "{line}");
            }
        }
    }

    #[test]
    fn a_bad_command_line_gets_the_help_of_its_own_command() {
        for (words, name) in [
            ("", "lightwait"),
            ("lod", "lightwait"),
            ("serve load", "lightwait serve"),
            ("knobs --x", "lightwait knobs"),
            ("load http://h/ merge", "lightwait load"),
            ("load merge --x", "lightwait load merge"),
        ] {
            let advice = Failure::Usage(String::new()).advice(words.split_whitespace());
            assert_eq!(advice, format!(" (see `{name} --help`)"), "{words}");
        }
        assert_eq!(Failure::Load(String::new()).advice(["load"]), "", "it is no bad command line");
    }

    #[test]
    fn failures_say_what_to_do() {
        let of = |kind: io::ErrorKind| io::Error::from(kind);
        let at: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let zoned = crate::zone::parse("[fe80::1%lo]:80").unwrap();
        for (failure, help) in [
            (Failure::Directory("site".into(), of(io::ErrorKind::NotFound)), "no such directory"),
            (Failure::Directory("f".into(), of(io::ErrorKind::NotADirectory)), "not a directory"),
            (Failure::Uring(of(io::ErrorKind::PermissionDenied)), "--file-io threads"),
            (Failure::Listen(at, of(io::ErrorKind::AddrInUse)), "ss -ltnp sport = :80"),
            (Failure::Listen(at, of(io::ErrorKind::AddrInUse)), "--listen 127.0.0.1:81,"),
            (Failure::Listen(at, of(io::ErrorKind::PermissionDenied)), "--listen 127.0.0.1:8080"),
            (Failure::Listen(at, of(io::ErrorKind::AddrNotAvailable)), "ip addr"),
            (Failure::Listen(zoned, of(io::ErrorKind::AddrInUse)), "[fe80::1%lo]:80: the port"),
            (Failure::Listen(zoned, of(io::ErrorKind::AddrInUse)), "--listen [fe80::1%lo]:81,"),
            (
                Failure::KernelAddress(KernelAddress {
                    address: "10.9.0.2/24".parse().unwrap(),
                    interface: "eth0".to_owned(),
                }),
                "`sudo ip addr del 10.9.0.2/24 dev eth0`",
            ),
            (
                Failure::HostAddress(KernelAddress {
                    address: "10.9.0.1/24".parse().unwrap(),
                    interface: "lw0".to_owned(),
                }),
                "--host-ip 10.9.0.1/24: the kernel has this address on lw0",
            ),
            (
                Failure::Conflict(Conflict {
                    address: "10.9.0.2".parse().unwrap(),
                    claimant: [2, 0, 0, 0, 0xab, 1],
                    kept: false,
                }),
                "02:00:00:00:ab:01",
            ),
        ] {
            let text = failure.to_string();
            assert!(text.contains(help) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_bad_command_line_and_a_failure_have_their_own_status() {
        let code = |failure: Failure| format!("{:?}", failure.exit_code());
        assert_eq!(code(Failure::Usage(String::new())), format!("{:?}", ExitCode::from(2)));
        assert_eq!(code(Failure::Stack(io::Error::other(""))), format!("{:?}", ExitCode::from(1)));
    }
}
