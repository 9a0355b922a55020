//! Which files are served, and how many descriptors the process has for them and for its clients.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use hyper::header::HeaderValue;
use hyper::http::uri::Authority;
use hyper::{StatusCode, Uri};
use lightwait_http::path::{PathError, RelativePath, Target, resolve};
use lightwait_http::{FilesConfig, Passwords};
use rustix::process::{Resource, getrlimit};

use super::{Bytes, usage};
use crate::args::ServeArgs;
use crate::failure::Failure;

/// A file under the directory that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SitePath(RelativePath);

impl FromStr for SitePath {
    type Err = String;

    fn from_str(text: &str) -> Result<SitePath, String> {
        let path = if text.starts_with('/') { text.to_owned() } else { format!("/{text}") };
        match resolve(&path) {
            Ok(Target { path, directory: false }) => Ok(SitePath(path)),
            Ok(_) => Err("give the path of a file from the served directory on".to_owned()),
            Err(PathError::Malformed(why)) => Err(why.to_owned()),
            Err(PathError::NoSuchName) => Err("no file has so long a name".to_owned()),
        }
    }
}

/// The file to serve in place of our own page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorPage {
    status: StatusCode,
    path: SitePath,
}

impl FromStr for ErrorPage {
    type Err = String;

    fn from_str(text: &str) -> Result<ErrorPage, String> {
        let (status, path) = text.split_once('=').ok_or("give STATUS=FILE, as in 404=404.html")?;
        let status = status.parse::<StatusCode>().ok();
        let is_error = |status: &StatusCode| status.is_client_error() || status.is_server_error();
        let status = status.filter(is_error).ok_or("give a status from 400 to 599")?;
        Ok(ErrorPage { status, path: path.parse()? })
    }
}

/// A file of passwords, and what they are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BasicAuth {
    under: RelativePath,
    file: PathBuf,
}

impl FromStr for BasicAuth {
    type Err = String;

    fn from_str(text: &str) -> Result<BasicAuth, String> {
        // A file's own path may begin with a slash, and have an equals sign.
        let parts = text.split_once('=').filter(|(under, _)| under.starts_with('/'));
        let (under, file) = parts.unwrap_or(("/", text));
        if file.is_empty() {
            return Err("give [/PATH=]FILE, as in /private=/etc/lightwait/passwords".to_owned());
        }
        match resolve(under) {
            Ok(Target { path, .. }) => Ok(BasicAuth { under: path, file: file.into() }),
            Err(PathError::Malformed(why)) => Err(why.to_owned()),
            Err(PathError::NoSuchName) => Err("no file has so long a name".to_owned()),
        }
    }
}

impl BasicAuth {
    /// The file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the file.
    fn passwords(&self) -> Result<Passwords, Failure> {
        let shown = self.file.display();
        let text = std::fs::read_to_string(&self.file)
            .map_err(|error| usage(format!("--basic-auth {shown}: {error}")))?;
        Passwords::parse(self.under.clone(), &text)
            .map_err(|fault| usage(format!("--basic-auth {shown}: {fault}")))
    }
}

/// The passwords, which must not be sent for everyone to read.
fn passwords(args: &ServeArgs) -> Result<Vec<Passwords>, Failure> {
    if !args.basic_auth.is_empty() && args.tls.cert.is_empty() && !args.tls.self_signed {
        let text = "--basic-auth: a password needs TLS: give --cert FILE --key FILE";
        return Err(usage(text.to_owned()));
    }
    args.basic_auth.iter().map(BasicAuth::passwords).collect()
}

/// A site with a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vhost {
    /// In lower case.
    pub(crate) host: String,
    pub(crate) directory: PathBuf,
}

impl FromStr for Vhost {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Vhost, Self::Err> {
        let (host, directory) =
            text.split_once('=').ok_or("give HOST=DIR, as in example.org=/srv/example")?;
        let is_name = |authority: &Authority| authority.as_str() == authority.host();
        if !host.parse::<Authority>().is_ok_and(|authority| is_name(&authority)) {
            return Err("give a host without a port, as in example.org=/srv/example");
        }
        if directory.is_empty() {
            return Err("give the directory of that host");
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        Ok(Vhost { host, directory: directory.into() })
    }
}

/// The sites, if each has a name of its own.
pub(super) fn vhosts(given: &[Vhost]) -> Result<Vec<Vhost>, Failure> {
    let twice = given
        .iter()
        .enumerate()
        .find(|(place, vhost)| given[..*place].iter().any(|other| other.host == vhost.host));
    match twice {
        Some((_, vhost)) => {
            Err(usage(format!("--vhost {} comes twice: leave one out", vhost.host)))
        }
        None => Ok(given.to_vec()),
    }
}

/// An origin as browsers write it (RFC 6454 §6.1), or `*`.
pub(crate) fn origin(text: &str) -> Result<HeaderValue, &'static str> {
    const ADVICE: &str = "give an origin, as in https://example.org or http://10.0.0.1:8080, or *";
    let uri = text.parse::<Uri>().map_err(|_| ADVICE)?;
    let is_origin = match (uri.scheme_str(), uri.authority()) {
        (Some(scheme), Some(authority)) => text == format!("{scheme}://{authority}"),
        _ => text == "*" || text == "null",
    };
    HeaderValue::from_str(text).ok().filter(|_| is_origin).ok_or(ADVICE)
}

/// The configuration of the file service, where a stack has `pool` bytes for pages.
pub(super) fn files(args: &ServeArgs, pool: usize) -> Result<FilesConfig, Failure> {
    let default = FilesConfig::default();
    let sites = 1 + args.vhost.len();
    // Responses may hold half of it, and this is a part of what they hold.
    let most = pool / 4;
    let cache_bytes = match args.file_cache {
        None => default.cache_bytes.min(most),
        Some(Bytes(bytes)) => {
            usize::try_from(bytes).ok().filter(|b| *b <= most).ok_or_else(|| {
                usage(format!("--file-cache: a quarter of a stack's memory at most, here {most}"))
            })?
        }
    };
    Ok(FilesConfig {
        listing: !args.no_listing,
        hidden: args.hidden,
        index: args.index.clone(),
        cache_bytes: cache_bytes / sites,
        listing_cache_bytes: default.listing_cache_bytes / sites,
        cache_open: cache_open(args.file_cache_open, descriptors())? / sites,
        cache_age: args.file_cache_age.unwrap_or(default.cache_age),
        precompressed: args.precompressed,
        cache_control: args.cache_control.clone(),
        fallback: args.fallback.clone().map(|SitePath(path)| path),
        error_pages: args
            .error_page
            .iter()
            .map(|page| (page.status, page.path.0.clone()))
            .collect(),
        origins: args.cors.clone(),
        compress: args.compress,
        passwords: passwords(args)?,
        ..default
    })
}

/// The files that the server keeps open, where the process may have so many `descriptors`.
fn cache_open(asked: Option<usize>, descriptors: usize) -> Result<usize, Failure> {
    let most = descriptors / 2;
    let open = asked.unwrap_or(FilesConfig::default().cache_open.min(most));
    if open > most {
        let text = "--file-cache-open: half of what the process may open at most";
        return Err(usage(format!("{text}, here {most}")));
    }
    Ok(open)
}

/// The connections that pass the bridge, each by a socket of the kernel's, where the process may
/// have so many `descriptors` and keeps so many files open. As many are left for files that are
/// being sent: where the kernel refuses sockets, nobody makes room for a new client.
pub(super) fn bridged_connections(descriptors: usize, files: usize) -> usize {
    (descriptors.saturating_sub(files) / 2).max(1)
}

/// The files and sockets that the process may have open (ulimit -Hn).
pub(super) fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).maximum;
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_file_of_the_site() {
        assert_eq!("404.html".parse::<SitePath>(), "/404.html".parse());
        for wrong in ["../up", "dir/", "", "a%2fb"] {
            assert!(wrong.parse::<SitePath>().is_err(), "{wrong}");
        }
        assert!("404=404.html".parse::<ErrorPage>().is_ok());
        for wrong in ["404.html", "200=ok.html", "x=404.html", "404=", "404=../x"] {
            assert!(wrong.parse::<ErrorPage>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_of_passwords_may_be_for_a_part_alone() {
        let auth = |text: &str| text.parse::<BasicAuth>();
        let all = auth("/etc/pass").unwrap();
        assert_eq!((all.under.as_bytes(), all.file), (&b""[..], PathBuf::from("/etc/pass")));
        let part = auth("/a/b=/etc/pass").unwrap();
        assert_eq!((part.under.as_bytes(), part.file), (&b"a/b"[..], PathBuf::from("/etc/pass")));
        assert_eq!(auth("pass=word").unwrap().file, PathBuf::from("pass=word"));
        for wrong in ["", "/a=", "/../a=x", "/a%2fb=x"] {
            assert!(auth(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_site_has_a_host_of_its_own() {
        let vhost = |text: &str| text.parse::<Vhost>();
        assert_eq!(vhost("Example.org.=/srv/a").unwrap().host, "example.org");
        for wrong in ["example.org", "=x", "example.org=", "example.org:80=x", "a b=x", "a/b=x"] {
            assert!(vhost(wrong).is_err(), "{wrong}");
        }
        let all = ["a.test=x", "b.test=y", "A.TEST=z"].map(|text| vhost(text).unwrap());
        assert!(vhosts(&all[..2]).is_ok() && vhosts(&all).is_err());
    }

    #[test]
    fn an_origin_has_no_path() {
        for right in ["*", "https://example.org", "http://10.0.0.1:8080", "http://[::1]:80"] {
            assert!(origin(right).is_ok(), "{right}");
        }
        for wrong in ["example.org", "https://example.org/", "https://example.org/a", "", "a b"] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn half_of_the_descriptors_are_for_kept_files() {
        assert_eq!(cache_open(None, 20_000).unwrap(), 512);
        assert_eq!(cache_open(None, 300).unwrap(), 150, "the default gives way");
        assert_eq!(cache_open(Some(150), 300).unwrap(), 150);
        assert!(cache_open(Some(151), 300).is_err());
    }
}
