//! The certificates of a server: read from files, at the start and at each SIGHUP, or made for one
//! run.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lightwait::device::kernel_addresses;
use lightwait_http::{Credentials, Identity, IdentityFault};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};

use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{Pair, Plan, Shown, Stack};

/// How long a certificate of our own lasts: what browsers take at most (398 days).
const LASTS: Duration = Duration::from_secs(397 * 86_400);
/// It began this long ago, since clocks differ.
const BEGAN: Duration = Duration::from_secs(86_400);

/// What the server shows, and where it has it from.
#[derive(Clone)]
pub(super) struct Secure {
    pub(super) credentials: Credentials,
    shown: Shown,
    /// As they are logged.
    sha256: Vec<String>,
}

impl Secure {
    /// What a plan has the server show, if it has TLS.
    pub(super) fn open(plan: &Plan) -> Result<Option<Secure>, Failure> {
        let Some(tls) = &plan.tls else { return Ok(None) };
        let identities = match &tls.shown {
            Shown::Files(pairs) => read_all(pairs)?,
            Shown::SelfSigned => vec![made(&names(&plan.stack))?],
        };
        let sha256 = identities.iter().map(fingerprint).collect();
        let credentials = Credentials::new(identities)
            .map_err(|error| Failure::Stack(std::io::Error::other(error)))?;
        Ok(Some(Secure { credentials, shown: tls.shown.clone(), sha256 }))
    }

    /// Logs what is shown.
    pub(super) fn tell(&self, log: &Log) {
        log.write(Record::Certificates { sha256: self.sha256.clone() });
    }

    /// Reads the files again, and shows what they have to clients that come from now on. If
    /// something is wrong with one, all stays as it was.
    pub(super) fn reload(&self, log: &Log) {
        let Shown::Files(pairs) = &self.shown else { return };
        let replaced = read_all(pairs).and_then(|identities| {
            let sha256 = identities.iter().map(fingerprint).collect();
            let outcome = self.credentials.replace(identities);
            outcome.map_err(|error| Failure::Stack(std::io::Error::other(error)))?;
            Ok(sha256)
        });
        log.write(match replaced {
            Ok(sha256) => Record::Certificates { sha256 },
            Err(failure) => {
                let text = format!("{failure}. The certificates stay as they were.");
                Record::Trouble { text }
            }
        });
    }
}

fn read_all(pairs: &[Pair]) -> Result<Vec<Identity>, Failure> {
    pairs.iter().map(read).collect()
}

fn read(Pair { chain, key }: &Pair) -> Result<Identity, Failure> {
    let identity = Identity::from_pem(&bytes(chain)?, &bytes(key)?);
    identity.map_err(|fault| {
        let path = match fault {
            IdentityFault::Chain(_) => chain,
            IdentityFault::Key(_) | IdentityFault::Mismatch => key,
        };
        let why = match fault {
            IdentityFault::Mismatch => {
                format!("this is not the key of the first certificate in {}", chain.display())
            }
            fault => fault.to_string(),
        };
        Failure::Certificate(path.clone(), why)
    })
}

fn bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::Certificate(path.to_owned(), error.to_string()))
}

/// A certificate of our own for these names and addresses.
fn made(names: &BTreeSet<String>) -> Result<Identity, Failure> {
    let refuse = |why: String| Failure::Certificate(PathBuf::from("--self-signed"), why);
    let begins = SystemTime::now() - BEGAN;
    let signed = || {
        let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, "lightwait, for a try");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (params.not_before, params.not_after) = (begins.into(), (begins + LASTS).into());
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok((certificate.der().to_vec(), key.serialize_der()))
    };
    let signed = signed().map_err(|error: rcgen::Error| refuse(error.to_string()));
    let (certificate, key) = signed?;
    Identity::from_der(certificate, key).map_err(|fault| refuse(fault.to_string()))
}

/// The names and addresses by which clients may know the server.
fn names(stack: &Stack) -> BTreeSet<String> {
    let mut names = BTreeSet::from(["localhost".to_owned()]);
    let addresses: Vec<IpAddr> = match stack {
        Stack::Device { addresses, .. } => addresses.iter().map(|cidr| cidr.address()).collect(),
        Stack::Bridge { listen } if listen.ip().is_unspecified() => all_of_kernel(),
        Stack::Bridge { listen } => vec![listen.ip()],
    };
    names.extend(addresses.iter().map(IpAddr::to_string));
    if let Stack::Bridge { .. } = stack {
        names.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        names.extend(Some(own).filter(|own| !own.is_empty() && own.bytes().all(is_name)));
    }
    names
}

/// The addresses of all interfaces of the kernel.
fn all_of_kernel() -> Vec<IpAddr> {
    let interfaces = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = interfaces.filter_map(|entry| entry.file_name().into_string().ok());
    let addresses = names.flat_map(|name| kernel_addresses(&name).unwrap_or_default());
    addresses.map(lightwait::Cidr::address).collect()
}

/// SHA-256 of a certificate, as openssl and browsers show it.
fn fingerprint(identity: &Identity) -> String {
    identity.fingerprint().map(|byte| format!("{byte:02X}")).join(":")
}
