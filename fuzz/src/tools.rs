//! Runs the compiler, and the LLVM tools beside it.

use std::path::PathBuf;
use std::process::Command;

use crate::root;

/// The value of `key` in the output of `rustc -vV`.
pub(crate) fn rustc(key: &str) -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|e| format!("rustc: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    value.map(str::to_owned).ok_or_else(|| format!("rustc -vV says nothing about {key}"))
}

/// Builds one binary of this package with `flags` for every crate but build scripts, in a folder of
/// its own under `target/`. Returns its path.
pub(crate) fn build(
    binary: &str,
    features: &str,
    folder: &str,
    flags: &[&str],
) -> Result<PathBuf, String> {
    // With a target given, cargo does not use the flags for build scripts, which are linked without
    // a driver.
    let triple = rustc("host")?;
    let folder = root().join("target").join(folder);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .current_dir(root())
        .args(["build", "--locked", "--quiet", "--package", "lightwait-fuzz", "--profile", "fuzz"])
        .args(["--bin", binary, "--features", features, "--target", &triple])
        .arg("--target-dir")
        .arg(&folder)
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("{binary} does not build"));
    }
    Ok(folder.join(triple).join("fuzz").join(binary))
}

/// The path of an LLVM tool of the compiler's own version, so that it can read the compiler's
/// output.
pub(crate) fn llvm(name: &str) -> Result<String, String> {
    let version = rustc("LLVM version")?;
    let major = version.split('.').next().unwrap_or_default();
    let versioned = format!("{name}-{major}");
    let works = |tool: &str| {
        let output = Command::new(tool).arg("--version").output();
        output.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout);
            text.contains(&format!("version {major}."))
        })
    };
    let found = [versioned.as_str(), name].into_iter().find(|tool| works(tool));
    found.map(str::to_owned).ok_or_else(|| {
        format!("no {versioned}: install Debian's llvm-{major}, LLVM of this rustc's version")
    })
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name}: {}\n{stderr}", output.status));
    }
    Ok(output.stdout)
}
