//! The state graph under `docs/` is made from the table of arcs, and kept in step with it.

use std::fmt::Write as _;
use std::{env, fs, path::Path};

use lightwait_core::tcp::state::ARCS;

fn graph() -> String {
    let mut text = String::from(
        "# The states of a connection\n\n\
         Made from `ARCS` in `crates/core/src/tcp/state.rs` (RFC 9293 §3.3.2, Figure 5) by\n\
         `UPDATE_SNAPSHOTS=1 cargo test -p lightwait-core --test state_graph`.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> Closed\n",
    );
    for (from, to, cause) in ARCS {
        writeln!(text, "    {from:?} --> {to:?}: {}", cause.replace(':', ",")).unwrap();
    }
    text.push_str("```\n");
    text
}

#[test]
fn the_graph_in_docs_is_the_table_in_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/states.md");
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, graph()).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, graph(), "docs/states.md is out of step: see its head for the command");
}
