#!/usr/bin/env bash
# Puts a load on three servers behind HAProxy, kills one under it, and starts that again. Prints
# what h2load saw. Fails if a request failed. Needs haproxy and h2load.
# LIGHTWAIT: the program. SECONDS_LONG: how long the load lasts.
set -euo pipefail
cd "$(dirname "$0")"
lightwait=${LIGHTWAIT:-../../target/release/lightwait}
long=${SECONDS_LONG:-12}
site=$(mktemp -d)
chmod 755 "$site"
head -c 6000 /dev/zero | tr '\0' x > "$site/index.html"
declare -A server
started=()
begin() {
    "$lightwait" serve --listen "127.0.0.1:$1" --quiet "$site" > "$site.$1" 2>&1 &
    server[$1]=$!
}
finish() {
    for process in "${started[@]}" "${server[@]}"; do kill "$process" 2> /dev/null || true; done
    wait 2> /dev/null || true
    rm -rf "$site" "$site".*
}
trap finish EXIT

for port in 8081 8082 8083; do begin $port; done
haproxy -c -q -f haproxy.cfg
haproxy -f haproxy.cfg > "$site.haproxy" 2>&1 &
started+=($!)
for _ in $(seq 50); do curl -s -o "$site.page" http://127.0.0.1:8080/ && break; sleep 0.1; done

h2load --h1 -c 60 -t 2 -D "$long" http://127.0.0.1:8080/ > "$site.report" &
load=$!
sleep $((long / 3))
kill -KILL "${server[8082]}"
sleep $((long / 3))
begin 8082
wait "$load"
grep -E '^(finished|requests|status codes)' "$site.report"
grep -qE '^requests: [0-9]{4,} total.* 0 failed, 0 errored, 0 timeout' "$site.report"
grep -qE '^status codes: .* 0 4xx, 0 5xx' "$site.report"
