#!/usr/bin/env bash
# Makes the Debian package: program, man pages, completions, unit, configuration.
# Needs cargo-deb (cargo install cargo-deb). Prints the package's path.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --locked --quiet --profile dist -p lightwait-cli
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
program=$target/dist/lightwait
pages=deploy/debian/pages
rm -rf "$pages"
mkdir -p "$pages"
"$program" man "$pages/"
gzip -9n "$pages"/*.1
"$program" completions bash > "$pages/lightwait.bash"
"$program" completions zsh > "$pages/_lightwait"
"$program" completions fish > "$pages/lightwait.fish"
cargo deb --locked --no-build --profile dist -p lightwait-cli
