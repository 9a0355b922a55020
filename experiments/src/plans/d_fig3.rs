//! The paper's two examples of its scheme, step by step: Figure 3, whose source takes less than a
//! round trip, and Figure 7, whose source takes two. The sender is a real connection. The server's
//! part is played here: it appends pending segments, and reads when none is left.
//!
//! Our window grows by whole segments, once a window is acknowledged; the paper's by 1/cwnd an ACK.
//! Both have the same whole segments at each step, and the scheme uses no more.

mod walk;

use lightwait_core::config::SendRule;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};
use walk::Walk;

/// The windows of Figure 7, in segments; the paper calls it N.
const WINDOWS: [u32; 3] = [2, 7, 16];

const FIXED: Ablation =
    Ablation { name: "fixed-buffer", instead: "the buffer holds 4 segments, whatever the window" };
const NO_FACTOR: Ablation =
    Ablation { name: "no-factor", instead: "T_fact is 1 where a read takes two round trips" };

/// A moment of an example: what the paper has, and what we have.
struct Step {
    when: String,
    paper_cwnd: String,
    cwnd: f64,
    facts: Vec<Fact>,
}

/// A number of segments.
struct Fact {
    what: &'static str,
    paper: u32,
    ours: u32,
}

impl Step {
    fn new(when: &str, paper_cwnd: &str, walk: &Walk) -> Step {
        let (when, paper_cwnd) = (when.to_owned(), paper_cwnd.to_owned());
        Step { when, paper_cwnd, cwnd: walk.cwnd(), facts: Vec::new() }
    }

    fn fact(mut self, what: &'static str, paper: u32, ours: u32) -> Step {
        self.facts.push(Fact { what, paper, ours });
        self
    }

    /// What the buffer holds.
    fn held(self, walk: &Walk, [outstanding, fresh, pending]: [u32; 3]) -> Step {
        self.fact("outstanding", outstanding, walk.outstanding())
            .fact("fresh", fresh, walk.fresh())
            .fact("pending", pending, walk.pending())
    }
}

/// Figure 3.
pub(crate) fn short_reads(report: &mut Report) -> Outcome {
    report.say("ReadTime < RTT; segments. What the paper has is its text's, or follows from it.");
    let rule = if report.is_ablated(&FIXED) { SendRule::Fixed } else { SendRule::Los };
    let mut walk = Walk::new(rule, 1)?;
    walk.fill();
    let mut steps = Vec::new();
    let step = Step::new("t0", "2.5", &walk).fact("hiwat", 5, walk.hiwat());
    steps.push(step.held(&walk, [2, 3, 1]));

    walk.acknowledge();
    walk.append();
    let access = walk.access();
    let step = Step::new("t1: ACK of 0", "2.9", &walk).fact("hiwat", 5, walk.hiwat());
    steps.push(step.held(&walk, [2, 3, 0]).fact("access", 4, access));

    walk.acknowledge();
    let step = Step::new("t2: ACK of 1", "3.245", &walk).fact("hiwat", 7, walk.hiwat());
    steps.push(step.held(&walk, [3, 1, 0]));

    walk.complete(access);
    let step = Step::new("t3: read complete", "3.245", &walk).fact("hiwat", 7, walk.hiwat());
    steps.push(step.held(&walk, [3, 4, 1]));

    let before = walk.sent();
    walk.acknowledge();
    walk.append();
    let next_access = walk.access();
    let step = Step::new("t1 + RTT: ACK of 2", "3.553", &walk).fact("hiwat", 7, walk.hiwat());
    steps.push(step.held(&walk, [3, 4, 0]).fact("access", 5, next_access));

    walk.acknowledge();
    walk.acknowledge();
    let step = Step::new("t1 + 2 RTT: ACK of 4", "4.095", &walk).fact("hiwat", 9, walk.hiwat());
    let step = step.held(&walk, [4, 1, 0]).fact("sent since t1 + RTT", 4, walk.sent() - before);
    steps.push(step);

    show(report, &steps)?;
    let whens: Vec<&str> = steps.iter().map(|step| step.when.as_str()).collect();
    let mut chart = Chart::of_categories("Figure 3, step by step", &whens, "segments");
    for what in ["hiwat", "outstanding", "fresh"] {
        let at = |of: fn(&Fact) -> u32| {
            let facts = steps.iter().map(move |step| step.facts.iter().find(|f| f.what == what));
            let points = facts.enumerate().filter_map(|(x, fact)| Some((x as f64, fact?)));
            points.map(|(x, fact)| (x, f64::from(of(fact)))).collect()
        };
        chart.draw(what, Mark::Line, at(|fact| fact.ours));
        chart.draw(&format!("{what}, paper"), Mark::Points, at(|fact| fact.paper));
    }
    report.picture("walk", &chart)?;
    // A miss ends, and counts, with the next write.
    walk.complete(next_access);
    judge(report, &FIXED, &steps, walk.misses());
    Ok(())
}

/// Figure 7.
pub(crate) fn long_reads(report: &mut Report) -> Outcome {
    report.say("ReadTime is two round trips (T_fact 2); segments. The paper's N is 2, 7 and 16.");
    let factor = if report.is_ablated(&NO_FACTOR) { 1 } else { 2 };
    let (mut steps, mut misses) = (Vec::new(), 0);
    for n in WINDOWS {
        let mut walk = Walk::new(SendRule::Los, factor)?;
        walk.grow_to(n);
        let named = |when: &str| format!("N = {n}, {when}");
        let whole = n.to_string();
        let step = Step::new(&named("t'"), &whole, &walk);
        let step = step.fact("hiwat", n + (n + 1) + (n + 2), walk.hiwat());
        steps.push(step.held(&walk, [n, (n + 1) + (n + 2), 1]));

        let before = walk.sent();
        walk.acknowledge();
        walk.append();
        let access = walk.access();
        let step = Step::new(&named("t0: an ACK"), &whole, &walk);
        steps.push(step.fact("pending", 0, walk.pending()).fact(
            "access",
            (n + 3) + (n + 4),
            access,
        ));

        // The rest of this window, and the next one.
        for _ in 0..(n - 1) + (n + 1) {
            walk.acknowledge();
        }
        let step = Step::new(&named("t0 + 2 RTT"), &(n + 2).to_string(), &walk);
        let sent = walk.sent() - before;
        steps.push(step.fact("sent since t0", (n + 1) + (n + 2), sent));

        walk.complete(access);
        let step = Step::new(&named("read complete"), &(n + 2).to_string(), &walk);
        let step = step.fact("hiwat", (n + 2) + (n + 3) + (n + 4), walk.hiwat());
        steps.push(step.held(&walk, [n + 2, (n + 3) + (n + 4), 1]));
        misses += walk.misses();
    }
    show(report, &steps)?;
    judge(report, &NO_FACTOR, &steps, misses);
    Ok(())
}

fn show(report: &mut Report, steps: &[Step]) -> Outcome {
    let mut table = Table::new(&["step", "cwnd, paper", "cwnd", "what", "paper", "ours"]);
    for Step { when, paper_cwnd, cwnd, facts } in steps {
        for Fact { what, paper, ours } in facts {
            table.row(&[when, paper_cwnd, cwnd, what, paper, ours]);
        }
    }
    report.table("walk", &table)
}

/// A claim for each step, and one for all.
fn judge(report: &mut Report, ablation: &'static Ablation, steps: &[Step], misses: u64) {
    for step in steps {
        let found = |fact: &Fact| format!("{} {}", fact.what, fact.ours);
        report.claim(
            &format!("{}: as in the paper", step.when),
            ablation,
            step.facts.iter().all(|fact| fact.paper == fact.ours),
            step.facts.iter().map(found).collect::<Vec<_>>().join(", "),
        );
    }
    report.claim("no buffer miss", ablation, misses == 0, misses);
}
