//! Makes a plan for the router of the command line.

use std::path::PathBuf;
use std::time::Duration;

use lightwait::shards::available_cores;
use lightwait_netem::LinkConfig;
use lightwait_wan::{DescriptionError, LinkText, Profile, Release, Steps, Threads, Way};

use super::args::{DeviceName, WanArgs};
use crate::failure::Failure;

/// The plan of `lightwait wan`.
#[derive(Clone, Debug)]
pub(super) struct WanPlan {
    pub(super) devices: [DeviceName; 2],
    /// The description of each direction, in the order of [`Way::ALL`].
    pub(super) texts: [LinkText; 2],
    pub(super) links: [LinkConfig; 2],
    pub(super) steps: Steps,
    pub(super) release: Release,
    pub(super) threads: Threads,
    pub(super) duration: Option<Duration>,
    pub(super) pcaps: [Option<PathBuf>; 2],
    pub(super) flows: bool,
    pub(super) json: bool,
}

impl WanPlan {
    /// Makes the plan, or returns one line that names the wrong flag.
    pub(super) fn new(args: &WanArgs) -> Result<WanPlan, Failure> {
        if args.a.interface() == args.b.interface() {
            let text = format!("A and B are both `{}`: name two interfaces", args.a.interface());
            return Err(Failure::Usage(text));
        }
        for (flag, time) in [("--interrupt", args.interrupt), ("--duration", args.duration)] {
            if time == Some(Duration::ZERO) {
                return Err(Failure::Usage(format!("{flag}: give a time above zero")));
            }
        }
        let profile = args.profile.as_deref().map(Profile::find).transpose();
        let profile = profile.map_err(wrong("--profile"))?.unwrap_or_default();
        let both = args.both.link();
        let [there, back] = [(&args.a_to_b, 0), (&args.b_to_a, 1)].map(|(own, n): (_, usize)| {
            let own = own.clone().unwrap_or_default();
            own.over(&both.over(&profile.links[n]))
        });
        let links = [
            there.config(Way::AToB).map_err(wrong("--a-to-b"))?,
            back.config(Way::BToA).map_err(wrong("--b-to-a"))?,
        ];
        let texts = [there, back];
        let steps = match &args.steps {
            Some(path) => Steps::read(path, &texts).map_err(wrong("--steps"))?,
            None => Steps::default(),
        };
        refuse_idle_queues(&links, &steps)?;
        Ok(WanPlan {
            devices: [args.a.clone(), args.b.clone()],
            texts,
            links,
            steps,
            release: args.interrupt.map_or(Release::Polling, Release::Every),
            threads: threads(args.threads)?,
            duration: args.duration,
            pcaps: [args.pcap_a.clone(), args.pcap_b.clone()],
            flows: args.flows,
            json: args.json,
        })
    }
}

/// The threads that the flag asks for, or as many as this process has cores for.
fn threads(given: Option<u8>) -> Result<Threads, Failure> {
    match given {
        Some(1) => Ok(Threads::One),
        Some(_) => Ok(Threads::OneEach),
        None => Ok(Threads::for_cores(available_cores().map_err(Failure::Stack)?)),
    }
}

/// Refuses a queue before a link that never has a rate or a bucket: nothing waits in it.
fn refuse_idle_queues(first: &[LinkConfig; 2], steps: &Steps) -> Result<(), Failure> {
    for (number, way) in ["A to B", "B to A"].into_iter().enumerate() {
        let phases = || {
            [first].into_iter().chain(steps.iter().map(|step| &step.links)).map(|all| &all[number])
        };
        let Some(idle) = phases().find_map(LinkConfig::bound_on_waiting) else { continue };
        if !phases().any(LinkConfig::has_queue) {
            return Err(Failure::Usage(format!(
                "{way}: {idle} does nothing without a rate, since no packet waits: give --rate, \
                 or rate=… or trace=… for this direction"
            )));
        }
    }
    Ok(())
}

fn wrong(flag: &'static str) -> impl Fn(DescriptionError) -> Failure {
    move |error| Failure::Usage(format!("{flag}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, CommandLine};
    use clap::Parser;

    fn plan(words: &str) -> Result<WanPlan, String> {
        let words = ["lightwait", "wan"].into_iter().chain(words.split_whitespace());
        let line = CommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Wan(args) = line.command else { panic!("another command") };
        WanPlan::new(&args).map_err(|failure| failure.to_string())
    }

    fn texts(words: &str) -> [String; 2] {
        plan(words).unwrap().texts.map(|text| text.to_string())
    }

    #[test]
    fn a_direction_replaces_both_and_both_replace_the_profile() {
        let [there, back] = texts("a b --profile dsl --delay 50ms --b-to-a delay=60ms,loss=1%");
        assert_eq!(there, "delay=50ms,queue=64KiB,rate=1Mbit");
        assert_eq!(back, "delay=60ms,loss=1%,queue=256KiB,rate=16Mbit");
        let both = texts(
            "a b --delay 1ms --jitter 1ms:normal --rate 8Mbit --queue 9packets --fq 8 \
             --bucket 4Mbit:9KB --mark 2ms --codel 5ms:100ms --loss 1% --reorder 2% \
             --duplicate 3% --corrupt 4% --mtu 1280 --seed 5",
        );
        let all = "bucket=4Mbit:9KB,codel=5ms:100ms,corrupt=4%,delay=1ms,duplicate=3%,fq=8,\
                   jitter=1ms:normal,loss=1%,mark=2ms,mtu=1280,queue=9packets,rate=8Mbit,\
                   reorder=2%,seed=5";
        assert_eq!(both, [all, all]);
        assert_eq!(texts("a b"), ["", ""], "a perfect link");
    }

    #[test]
    fn a_queue_needs_a_rate_at_some_time() {
        for (words, way) in [
            ("--queue 9packets", "A to B: queue"),
            ("--codel 5ms:100ms --a-to-b rate=1Mbit", "B to A: codel"),
            ("--b-to-a queue=64KiB", "B to A: queue"),
            ("--rate 1Mbit --a-to-b queue=64KiB", ""),
            ("--bucket 1Mbit:9KB --fq 8", ""),
            ("--mark 9packets", "A to B: mark"),
            ("--profile dsl --queue 64KiB", ""),
        ] {
            let error = plan(&format!("a b {words}")).map(|_| String::new());
            let error = error.unwrap_or_else(|error| error);
            assert!(error.starts_with(way) && error.is_empty() == way.is_empty(), "{error}");
        }
        let directory = tempfile::tempdir().unwrap();
        let steps = directory.path().join("steps.toml");
        std::fs::write(&steps, "[[step]]\nat = '1s'\nboth = 'rate=1Mbit'\n").unwrap();
        assert!(plan(&format!("a b --queue 9packets --steps {}", steps.display())).is_ok());
        std::fs::write(&steps, "[[step]]\nat = '1s'\nboth = 'queue=9packets'\n").unwrap();
        let error = plan(&format!("a b --steps {}", steps.display())).unwrap_err();
        assert!(error.starts_with("A to B: queue does nothing without a rate"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_flag() {
        for (words, help) in [
            ("a a", "A and B are both `a`"),
            ("tap:a af-packet:a", "A and B are both `a`"),
            ("a b --delay 30", "--delay <TIME>': expected a duration with its unit"),
            ("a b --loss 200%", "--loss <LOSS>': expected 1%"),
            ("a b --a-to-b delay=x", "--a-to-b <SPEC>': `delay=x`: expected a duration"),
            ("a b --a-to-b trace=/no/such", "--a-to-b: trace /no/such: cannot be read"),
            ("a b --profile modem", "--profile: there is no profile `modem`"),
            ("a b --steps /no/such", "--steps: /no/such: cannot be read"),
            ("a b --threads 3", "3 is not in 1..=2"),
            ("a b --interrupt 0s", "--interrupt: give a time above zero"),
            ("a", "<B>"),
            ("", "<A>"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.contains(help), "{words}: {error}");
        }
    }
}
