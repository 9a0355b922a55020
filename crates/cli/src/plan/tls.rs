//! HTTPS: which certificates, and on which port.

use std::path::PathBuf;

use super::{DevicePlan, Stack, usage};
use crate::args::TlsArgs;
use crate::failure::Failure;

/// HTTPS beside HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsPlan {
    pub(crate) shown: Shown,
    /// Its port, on the addresses of HTTP.
    pub(crate) port: u16,
    /// Requests without TLS are sent there.
    pub(crate) redirects: bool,
}

/// What the server shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// What these files have; at least one pair.
    Files(Vec<Pair>),
    /// A certificate made for this run.
    SelfSigned,
}

/// A certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

const DEVICE_PORT: u16 = 443;
const BRIDGE_PORT: u16 = 8443;

/// HTTPS as the flags have it, beside HTTP on that stack.
pub(super) fn plan(args: &TlsArgs, stack: &Stack) -> Result<Option<TlsPlan>, Failure> {
    let (chains, keys) = (args.cert.len(), args.key.len());
    if chains != keys {
        let text = format!(
            "--cert and --key go in pairs, in the same order; there are {chains} and {keys}"
        );
        return Err(usage(text));
    }
    if chains == 0 && !args.self_signed {
        let flags = [
            ("--https-port", args.https_port.is_some()),
            ("--redirect-https", args.redirect_https),
            ("--hsts", args.hsts.is_some()),
        ];
        return match flags.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(usage(format!(
                "{flag} needs a certificate: give --cert FILE --key FILE, or --self-signed"
            ))),
            None => Ok(None),
        };
    }
    let pairs = args.cert.iter().cloned().zip(args.key.iter().cloned());
    let shown = match args.self_signed {
        true => Shown::SelfSigned,
        false => Shown::Files(pairs.map(|(chain, key)| Pair { chain, key }).collect()),
    };
    let port = port(args, stack)?;
    Ok(Some(TlsPlan { shown, port, redirects: args.redirect_https }))
}

/// The port, which is not HTTP's.
fn port(args: &TlsArgs, stack: &Stack) -> Result<u16, Failure> {
    let (plain, default) = match stack {
        Stack::Bridge { listen } => (listen.port(), BRIDGE_PORT),
        Stack::Device { port, .. } => (*port, DEVICE_PORT),
    };
    let port = args.https_port.unwrap_or(default);
    if port == plain && port != 0 {
        let text = format!("--https-port {port}: HTTP has this port; give another, or --port");
        return Err(usage(text));
    }
    let Stack::Device { device, .. } = stack else { return Ok(port) };
    if port == 0 {
        return Err(usage("--https-port 0: give a port from 1 to 65535".to_owned()));
    }
    if let DevicePlan::AfXdp { ports: Some(taken), .. } = device
        && !(taken.first..=taken.last).contains(&port)
    {
        let text = format!("--afxdp-ports {taken}: the port of HTTPS, {port}, is not among them");
        return Err(usage(text));
    }
    Ok(port)
}
