//! `--time-wait`: which end of a connection holds TIME-WAIT. Turns the choice into a knob of the
//! stack and a setting of the server.

use super::{Setting, Stack, usage};
use crate::args::{ServeArgs, TimeWaitArg};
use crate::failure::Failure;

/// How full TIME-WAIT is, in percent, when every answer begins to ask. Below this level a record is
/// cheaper than a connection that closes early. The last fifth is for clients that do not obey and
/// for idle connections: 12 s of them at the rate that fills the table in a minute. The log warns
/// at the same level, so an operator sees both begin together.
const ASK_AT: u8 = 80;

/// The knob that `--time-wait negotiate` sets.
pub(super) const KNOB: &str = "time_wait.negotiate";

/// The settings for the stack's knobs, with the one that `--time-wait` adds.
pub(super) fn settings(args: &ServeArgs, stack: &Stack) -> Result<Vec<Setting>, Failure> {
    let mut settings = args.set.clone();
    if args.time_wait == TimeWaitArg::Negotiate {
        if let Stack::Bridge { .. } = stack {
            let text = "--time-wait negotiate needs a device: the bridge's clients are on the \
                        kernel's stack, which does not negotiate; give --tap NAME or --af-packet \
                        IFACE as well";
            return Err(usage(text.to_owned()));
        }
        settings.push(Setting::new(KNOB, "client"));
    }
    Ok(settings)
}

/// The level of TIME-WAIT, in percent, from which on every answer asks; `None`: never.
pub(super) fn ask_at(args: &ServeArgs) -> Result<Option<u8>, Failure> {
    if args.time_wait == TimeWaitArg::AskClient {
        return Ok(Some(args.ask_at.unwrap_or(ASK_AT)));
    }
    let given = [("--ask-at", args.ask_at.is_some()), ("--ask-grace", args.ask_grace.is_some())];
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            Err(usage(format!("{flag} is for clients that are asked: give --time-wait ask-client")))
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use lightwait_core::{Capabilities, Config, Medium};

    use crate::args::{Command, CommandLine};
    use crate::plan::Plan;

    const DEVICE: &str = "--tap t --ip 10.9.0.2/24";

    fn plan(line: &str) -> Result<Plan, String> {
        let words = ["lightwait", "serve"].into_iter().chain(line.split_whitespace());
        let Command::Serve(args) = CommandLine::try_parse_from(words).expect(line).command else {
            unreachable!("it begins with serve")
        };
        Plan::new(&args).map_err(|failure| failure.to_string())
    }

    /// The wish of the host and whether the server asks, and when always.
    fn of(line: &str) -> (String, bool, Option<u8>) {
        let plan = plan(line).unwrap();
        let device = Capabilities::plain(Medium::Ip, 1500);
        let config = plan.knobs.on(Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]));
        let wish = format!("{:?}", config.tcp.time_wait.negotiate);
        (wish, plan.server.ask_client, plan.ask_at)
    }

    #[test]
    fn each_way_turns_on_what_it_names_and_nothing_else() {
        let off = || "Off".to_owned();
        assert_eq!(of(""), (off(), false, None));
        assert_eq!(of(&format!("{DEVICE} --time-wait keep")), (off(), false, None));
        let negotiate = format!("{DEVICE} --time-wait negotiate");
        assert_eq!(of(&negotiate), ("Client".to_owned(), false, None));
        // The bridge asks as well: there it spares the kernel's sockets.
        for device in ["", DEVICE] {
            let ask = format!("{device} --time-wait ask-client");
            assert_eq!(of(&ask), (off(), true, Some(80)));
            assert_eq!(of(&format!("{ask} --ask-at 0")), (off(), true, Some(0)));
            let grace = plan(&format!("{ask} --ask-grace 250ms")).unwrap().server;
            assert_eq!(grace.client_close_grace, Duration::from_millis(250));
        }
    }

    #[test]
    fn a_contradiction_is_reported_with_the_flag_at_fault() {
        for (line, why) in [
            ("--time-wait negotiate", "--tap NAME"),
            (
                &format!("{DEVICE} --time-wait negotiate --set time_wait.negotiate=self"),
                "leave one",
            ),
            ("--ask-at 50", "--ask-at is for clients that are asked"),
            (&format!("{DEVICE} --time-wait negotiate --ask-grace 2s"), "--ask-grace is for"),
        ] {
            let text = plan(line).unwrap_err();
            assert!(text.contains(why), "{line}: {text}");
        }
    }
}
