//! Where the log goes, and in which form.

use std::path::PathBuf;

use super::usage;
use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::log::{AccessOutput, Form, Level};

/// The records to log, and the form of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogPlan {
    pub(crate) form: Form,
    /// The file, if it is not standard output.
    pub(crate) file: Option<PathBuf>,
    /// Where the lines of responses go, if not to the others.
    pub(crate) access: Option<AccessOutput>,
    /// A line for each response.
    pub(crate) requests: bool,
    /// A line for each connection that failed.
    pub(crate) failures: bool,
    /// Lines for what happens to connections.
    pub(crate) level: Level,
}

impl LogPlan {
    /// The plan of these flags, or what is wrong with them.
    pub(super) fn new(args: &ServeArgs) -> Result<LogPlan, Failure> {
        let requests = !args.quiet || args.access_log.is_some();
        let format = args.log_fields.then_some("--log-fields");
        let format = format.or(args.access_log_format.as_ref().map(|_| "--access-log-format"));
        if let Some(flag) = format.filter(|_| !requests) {
            return Err(usage(format!(
                "{flag} is for the lines of requests, and --quiet leaves them out: give \
                 --access-log FILE as well, or leave one out"
            )));
        }
        Ok(LogPlan {
            form: form(args),
            file: args.log.clone(),
            access: args.access_log.clone(),
            requests,
            failures: args.verbose > 0,
            level: args.log_level,
        })
    }
}

/// The form of the lines; that of a request's line may be given by itself.
fn form(args: &ServeArgs) -> Form {
    let form = match (args.json, args.log_fields) {
        (true, _) => Form::JSON,
        (false, true) => Form::FIELDS,
        (false, false) => Form::COMBINED,
    };
    let requests = args.access_log_format.clone().unwrap_or(form.requests);
    Form { requests, ..form }
}
