//! The certificates of a server: read from files, at the start and at each SIGHUP, or made for one
//! run.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lightwait::device::kernel_addresses;
use lightwait::rt;
use lightwait_http::{Credentials, Identity, IdentityFault};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use x509_parser::pem::Pem;

use super::crew::Crew;
use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{Pair, Plan, Shown, Stack};

/// A certificate that expires within that time, in seconds, is warned of.
const SOON: i64 = 14 * 86_400;
/// How often a server that runs warns of it.
const REMINDS_AFTER: Duration = Duration::from_secs(86_400);
/// How long a certificate of our own lasts: what browsers take at most (398 days).
const LASTS: Duration = Duration::from_secs(397 * 86_400);
/// It began this long ago, since clocks differ.
const BEGAN: Duration = Duration::from_secs(86_400);

/// What the server shows, and where it has it from.
#[derive(Clone)]
pub(super) struct Secure {
    pub(super) credentials: Credentials,
    shown: Arc<Mutex<Shown>>,
    /// As they are logged.
    sha256: Vec<String>,
    expiries: Vec<Expiry>,
}

/// When a certificate that a file has expires, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) file: PathBuf,
    pub(super) at: i64,
}

/// The certificates of a server that answers questions about them.
pub(super) type Expiries = Mutex<Vec<Expiry>>;

impl Secure {
    /// What a plan has the server show, if it has TLS.
    pub(super) fn open(plan: &Plan) -> Result<Option<Secure>, Failure> {
        let Some(tls) = &plan.tls else { return Ok(None) };
        let (identities, expiries) = match &tls.shown {
            Shown::Files(pairs) => (read_all(pairs)?, expiries(pairs)),
            Shown::SelfSigned => (vec![made(&names(&plan.stack))?], Vec::new()),
        };
        let sha256 = identities.iter().map(fingerprint).collect();
        let credentials = Credentials::new(identities)
            .map_err(|error| Failure::Stack(std::io::Error::other(error)))?;
        let shown = Arc::new(Mutex::new(tls.shown.clone()));
        Ok(Some(Secure { credentials, shown, sha256, expiries }))
    }

    /// Logs what is shown, and tells when it expires.
    pub(super) fn tell(&self, log: &Log, known: &Expiries) {
        log.write(Record::Certificates { sha256: self.sha256.clone() });
        note(self.expiries.clone(), log, known);
    }

    /// Reads the files again, those of `plan` if there is a new one, and shows what they have to
    /// clients that come from now on. If something is wrong with one, all stays as it was.
    pub(super) fn reload(&self, plan: Option<&Plan>, log: &Log, known: &Expiries) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Shown::Files(pairs), Some(new)) = (&mut *shown, plan.and_then(pairs_of)) {
            new.clone_into(pairs);
        }
        let Shown::Files(pairs) = &*shown else { return };
        let replaced = read_all(pairs).and_then(|identities| {
            let sha256 = identities.iter().map(fingerprint).collect();
            let outcome = self.credentials.replace(identities);
            outcome.map_err(|error| Failure::Stack(std::io::Error::other(error)))?;
            Ok(sha256)
        });
        log.write(match replaced {
            Ok(sha256) => {
                note(expiries(pairs), log, known);
                Record::Certificates { sha256 }
            }
            Err(failure) => {
                let text = format!("{failure}. The certificates stay as they were.");
                Record::Trouble { text }
            }
        });
    }
}

/// The files of a plan's certificates, if they come from files.
fn pairs_of(plan: &Plan) -> Option<&[Pair]> {
    match &plan.tls.as_ref()?.shown {
        Shown::Files(pairs) => Some(pairs),
        Shown::SelfSigned => None,
    }
}

/// Refuses a plan whose certificates cannot be shown.
pub(super) fn check(plan: &Plan) -> Result<(), Failure> {
    pairs_of(plan).map_or(Ok(()), |pairs| read_all(pairs).map(drop))
}

/// Remembers when certificates expire, and warns of those that do soon.
fn note(expiries: Vec<Expiry>, log: &Log, known: &Expiries) {
    *known.lock().unwrap_or_else(PoisonError::into_inner) = expiries;
    warn(log, known);
}

/// Warns each day of certificates that expire soon.
pub(super) async fn remind(log: Log, crew: Arc<Crew>) {
    loop {
        rt::sleep(REMINDS_AFTER).await;
        warn(&log, &crew.health.expiries);
    }
}

fn warn(log: &Log, known: &Expiries) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
    for warning in known.iter().filter_map(|expiry| expiry.warning(now)) {
        log.write(Record::Trouble { text: warning });
    }
}

impl Expiry {
    /// What to say of it, if it is soon.
    pub(super) fn warning(&self, now: i64) -> Option<String> {
        let (file, left) = (self.file.display(), self.at.saturating_sub(now));
        if left <= 0 {
            return Some(format!("Warning: the certificate in {file} has expired."));
        }
        let days = left / 86_400;
        (left < SOON).then(|| format!("Warning: the certificate in {file} expires in {days} days."))
    }
}

/// When the first certificate of each file expires: the server's own.
fn expiries(pairs: &[Pair]) -> Vec<Expiry> {
    let expiry = |pair: &Pair| {
        let at = expiry_of(&fs::read(&pair.chain).ok()?)?;
        Some(Expiry { file: pair.chain.clone(), at })
    };
    pairs.iter().filter_map(expiry).collect()
}

fn expiry_of(chain: &[u8]) -> Option<i64> {
    let mut blocks = Pem::iter_from_buffer(chain).filter_map(Result::ok);
    let own = blocks.find(|block| block.label == "CERTIFICATE")?;
    Some(own.parse_x509().ok()?.validity().not_after.timestamp())
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

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;

    #[test]
    fn the_first_certificate_of_a_file_says_when_it_expires() {
        let made = |after: u64| {
            let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
            params.not_after = (SystemTime::UNIX_EPOCH + Duration::from_secs(after)).into();
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let text = base64::engine::general_purpose::STANDARD.encode(made.der());
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let chain = format!("{}{}", made(2_000_000_000), made(2_100_000_000));
        assert_eq!(expiry_of(chain.as_bytes()), Some(2_000_000_000));
        assert_eq!(
            expiry_of(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
            None
        );
        assert_eq!(expiry_of(b""), None);
    }

    #[test]
    fn a_warning_comes_within_fourteen_days() {
        let expiry = Expiry { file: "a.pem".into(), at: 100 * 86_400 };
        assert_eq!(expiry.warning(86 * 86_400), None);
        let warning = expiry.warning(86 * 86_400 + 1).unwrap();
        assert!(warning.contains("a.pem expires in 13 days"), "{warning}");
        assert!(expiry.warning(100 * 86_400).unwrap().contains("has expired"));
    }
}
