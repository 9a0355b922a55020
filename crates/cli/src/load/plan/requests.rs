//! The requests of a load: one request, a mix, or a log's.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use lightwait_load::mix::{self, Mix, Part};
use lightwait_load::request::Request;
use lightwait_load::share::Share;
use lightwait_load::trace::Trace;

use super::usage;
use crate::failure::Failure;
use crate::load::args::{LoadArgs, MixArg};
use crate::load::target::Target;

/// The requests of a load.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) mix: Mix,
    /// Their methods, for users.
    pub(super) method: String,
    /// The mix's or the log's name, if there is one.
    pub(super) name: Option<String>,
    /// The times at which they are made, if a log has them.
    pub(super) times: Option<Times>,
}

/// The times of a log's requests.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) starts: Vec<Duration>,
    /// The time to the end of the log's last second.
    pub(super) duration: Duration,
}

impl Requests {
    /// Makes the requests of the command line, and of the files that it names.
    pub(super) fn new(args: &LoadArgs, target: &Target) -> Result<Requests, Failure> {
        if let Some(path) = &args.trace {
            return replay(path, args, target);
        }
        if let Some(mix) = &args.mix {
            return mixed(mix, args, target);
        }
        let default = if args.body.is_some() { "POST" } else { "GET" };
        let method = args.method.clone().unwrap_or_else(|| default.to_owned());
        let body = args.body.as_deref().map_or(Ok(Vec::new()), body)?;
        let request = Request::new(&method, &target.path, &target.host, &args.header, &body);
        let mix = Mix::one(request.map_err(Failure::Usage)?);
        Ok(Requests { mix, method, name: None, times: None })
    }
}

/// A body, or with `@FILE` the contents of a file.
fn body(text: &str) -> Result<Vec<u8>, Failure> {
    let Some(path) = text.strip_prefix('@') else { return Ok(text.as_bytes().to_vec()) };
    fs::read(path).map_err(|error| Failure::Load(format!("body @{path}: cannot be read: {error}")))
}

fn mixed(choice: &MixArg, args: &LoadArgs, target: &Target) -> Result<Requests, Failure> {
    let directory = target.directory();
    let (name, parts) = match choice {
        MixArg::Webstone => ("webstone".to_owned(), mix::webstone(directory)),
        MixArg::Zipf { count, exponent } => {
            (format!("zipf:{count}:{exponent}"), mix::zipf(directory, *count, *exponent))
        }
        MixArg::File(path) => {
            let name = path.display().to_string();
            let text = fs::read_to_string(path)
                .map_err(|error| Failure::Load(format!("--mix {name}: cannot be read: {error}")))?;
            let parts = mix::parse(&text).map_err(|why| usage(format!("--mix {name}: {why}")))?;
            (name, parts)
        }
    };
    let methods: BTreeSet<&str> = parts.iter().map(|part| &*part.method).collect();
    let method = methods.into_iter().collect::<Vec<_>>().join(", ");
    let make = |part: &Part| -> Result<(f64, Request), Failure> {
        let body = part.body.as_deref().map_or(Ok(Vec::new()), body)?;
        let request = Request::new(&part.method, &part.target, &target.host, &args.header, &body);
        let request = request.map_err(|why| usage(format!("--mix {name}: {why}")))?;
        Ok((part.weight, request))
    };
    let requests = parts.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    let mix = Mix::weighted(requests, crate::load::random());
    let mix = mix.map_err(|why| usage(format!("--mix {name}: {why}")))?;
    Ok(Requests { mix, method, name: Some(name), times: None })
}

fn replay(path: &Path, args: &LoadArgs, target: &Target) -> Result<Requests, Failure> {
    let name = path.display();
    let unreadable = |error| Failure::Load(format!("--trace {name}: cannot be read: {error}"));
    let text = args.body.as_deref().map_or(Ok(Vec::new()), body)?;
    let file = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut methods = BTreeSet::new();
    let is_given =
        |field: &str| args.header.iter().any(|(name, _)| name.eq_ignore_ascii_case(field));
    let trace = Trace::read(file, |line| {
        let mut fields = args.header.clone();
        fields.extend(line.fields.iter().filter(|(name, _)| !is_given(name)).cloned());
        // A log does not have the bodies of requests.
        let takes_body = ["POST", "PUT", "PATCH"].contains(&&*line.method);
        let body = if takes_body { &text[..] } else { &[] };
        let request = Request::new(&line.method, &line.target, &target.host, &fields, body)?;
        methods.insert(line.method.clone());
        Ok(request)
    });
    let trace = trace.map_err(unreadable)?;
    let about = trace.first_skipped.as_deref().unwrap_or("it is empty");
    if trace.is_empty() {
        return Err(usage(format!(
            "--trace {name}: no request in it, by Common or Combined Log Format: {about}"
        )));
    }
    if trace.skipped > 0 {
        eprintln!("--trace {name}: lines that are no requests: {}; {about}.", trace.skipped);
    }
    let duration = trace.duration(args.trace_speed);
    let share = args.part.unwrap_or(Share::ALL);
    let own = trace.schedule(args.trace_speed).skip(share.number() as usize);
    let (starts, order): (Vec<_>, Vec<_>) = own.step_by(share.of() as usize).unzip();
    if order.is_empty() {
        return Err(usage(format!("--part: there are more parts than requests in {name}")));
    }
    Ok(Requests {
        mix: Mix::in_order(trace.requests, order),
        method: methods.into_iter().collect::<Vec<_>>().join(", "),
        name: Some(format!("trace {name}, {} times as fast", args.trace_speed)),
        times: Some(Times { starts, duration }),
    })
}
