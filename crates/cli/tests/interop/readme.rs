//! The README's commands run as they stand there, and do what it says of them.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::namespace;
use crate::tools;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
/// Where the first server is reached, as the README says below its command.
const BRIDGED: &str = "http://127.0.0.1:8080/";

/// The lines of the blocks for a shell.
fn commands() -> Vec<String> {
    let text = std::fs::read_to_string(README).unwrap();
    let blocks = text.split("\n```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.strip_prefix("sh\n"));
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

/// The line, by a shell at the root of the repository, with the program under test and more flags.
fn shell(line: &str, flags: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_lightwait");
    let line = line.split(" #").next().unwrap_or(line).replace("sudo ", "");
    let line = line.replace("cargo run --release --", program);
    let line = line.replace("target/release/lightwait", program);
    let mut shell = tools::command("sh");
    // The shell's process is the program's.
    let exec = if line.starts_with(program) { "exec " } else { "" };
    shell.args(["-c", &format!("{exec}{line} {flags}")]);
    shell.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    shell
}

/// A server that runs.
struct Serving(Child);

impl Serving {
    /// Starts it, and waits until it serves the README at `url`.
    fn start(line: &str, url: &str) -> Serving {
        let serving = Serving(shell(line, "").stdout(Stdio::null()).spawn().unwrap());
        let begin = Instant::now();
        let page = format!("{url}README.md");
        while !tools::curl(&page).output().is_ok_and(|output| output.status.success()) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{line}: no answer from {url}");
            std::thread::sleep(Duration::from_millis(50));
        }
        serving
    }

    /// Stops it as Ctrl-C does.
    fn stop(mut self) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_readmes_commands_do_what_it_says() {
    let test = "readme::the_readmes_commands_do_what_it_says";
    namespace::inside(test, &["curl", "sh"], || {
        let mut servers = Vec::new();
        let mut count = 0;
        for line in commands() {
            if line.starts_with("cargo test")
                || line.contains("--tap") && !namespace::can_make_tap()
            {
                continue;
            }
            count += 1;
            if line.contains(" serve ") {
                let url = line.split_once("# then: curl ").map_or(BRIDGED, |(_, url)| url);
                servers.push(Serving::start(&line, url));
            } else if line.contains(" load ") {
                tools::output(&mut shell(&line, "--warm-up 1s --duration 1s"));
            } else if line.contains(" wan ") {
                let output = shell(&line, "--duration 1s").output().unwrap();
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && !text.contains("carrier"), "{text}");
            } else {
                tools::output(&mut shell(&line, ""));
            }
        }
        servers.into_iter().for_each(Serving::stop);
        assert!(count >= 5, "{count} commands were found");
    });
}
