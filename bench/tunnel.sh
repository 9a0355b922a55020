#!/bin/sh
# The tunnel beside others: one namespace of clients, one SOCKS5 proxy, one server, one run.
#
#   sudo bench/tunnel.sh LIGHTWAIT BESIDE TUN2PROXY [ROUNDS] [IDLE] > bench/runs/DATE/tunnel.txt
#
# LIGHTWAIT: target/release/lightwait. BESIDE: target/release/examples/beside (`cargo build
# --release -p lightwait-tunnel --example beside`). TUN2PROXY: tun2proxy-bin (`cargo install
# tun2proxy`). In each round each tunnel has its turn, in a fresh process:
#
#   bulk N       N transfers at once, 1 GiB in all, within 20 s: MiB/s, and the tunnel's processor
#                time a MiB
#   connect N    N clients open, ask for a byte, take it and close, for 5 s: connections a second,
#                failures, median and 99th percentile, and the tunnel's processor time for each
#   idle         IDLE connections that have carried a byte each, within 120 s: open, and resident
#                bytes for each
set -eu
lightwait=$1 beside=$2 tun2proxy=$3 rounds=${4:-3} idle=${5:-9000}

if [ "${TUNNEL_BENCH_INSIDE:-}" != 1 ]; then
    TUNNEL_BENCH_INSIDE=1 exec unshare --net --mount --pid --fork --mount-proc "$0" "$@"
fi
far=203.0.113.5 proxy=127.0.0.1:1080 ports=8
ip link set lo up
ip addr add $far/32 dev lo
sysctl -qw net.ipv4.ip_local_port_range="1024 65535" net.ipv4.tcp_tw_reuse=1
ulimit -n "$(ulimit -Hn)"
unshare --net sleep 100000 &
client=$!
sleep 0.3
in_client() { nsenter --target $client --net -- "$@"; }
in_client ip link set lo up
in_client sysctl -qw net.ipv4.ip_local_port_range="1024 65535" net.ipv4.tcp_tw_reuse=1
"$beside" server $far:8000 $ports &
# Each process of the proxy's has two descriptors a connection.
for _ in 1 2; do "$beside" proxy $proxy & done
sleep 0.3

ticks=$(getconf CLK_TCK)
# Seconds of processor that the tunnel has used.
cpu() { awk -v t="$ticks" '{ print ($14 + $15) / t }' "/proc/$tunnel/stat"; }
resident() { awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$tunnel/status"; }
calc() { awk "BEGIN { printf \"%.$1f\", $2 }"; }

begin() {
    name=$1
    case $name in
        lightwait) "$lightwait" tunnel --tun tun9 --to socks5://$proxy 2> /dev/null & ;;
        tun2proxy) "$tun2proxy" --tun tun9 --proxy socks5://$proxy --max-sessions 100000 \
            --tcp-timeout 3600 --verbosity off > /dev/null 2>&1 & ;;
    esac
    tunnel=$!
    until ip link show tun9 > /dev/null 2>&1; do sleep 0.1; done
    sleep 0.5
    ip link set tun9 netns $client
    in_client ip addr add 198.18.0.1/30 dev tun9
    in_client ip link set tun9 up
    in_client ip route add default dev tun9
    sleep 0.5
}

end() {
    # One that is at its end may not heed anything else.
    kill -KILL "$tunnel"
    wait "$tunnel" 2> /dev/null || true
    while in_client ip link show tun9 > /dev/null 2>&1; do sleep 0.1; done
}

bulk() {
    before=$(cpu)
    if ! seconds=$(in_client timeout 20 "$beside" bulk $far:8000 "$1" 1024); then
        echo "$name round=$round bulk streams=$1 not_done_in_s=20"
        return
    fi
    used=$(calc 3 "$(cpu) - $before")
    echo "$name round=$round bulk streams=$1 mib_per_s=$(calc 0 "1024 / $seconds")" \
        "cpu_us_per_mib=$(calc 0 "$used * 1e6 / 1024")"
}

connect() {
    before=$(cpu)
    at_once=$1
    # shellcheck disable=SC2046
    set -- $(in_client "$beside" connect $far:8000 $ports "$at_once" 5)
    used=$(calc 3 "$(cpu) - $before")
    echo "$name round=$round connect at_once=$at_once per_s=$(calc 0 "$1 / $3") failed=$2 median_us=$4 p99_us=$5" \
        "cpu_us_each=$(calc 1 "$used * 1e6 / ($1 + 0.001)")"
}

hold() {
    before=$(resident)
    fifo=$(mktemp -u)
    mkfifo "$fifo"
    out=$(mktemp)
    in_client "$beside" idle $far:8000 $ports "$idle" < "$fifo" > "$out" &
    holder=$!
    exec 9> "$fifo"
    waited=0
    until [ -s "$out" ] || [ $waited -ge 120 ]; do
        sleep 1
        waited=$((waited + 1))
    done
    open=$(cat "$out")
    : "${open:=0}"
    sleep 3
    after=$(resident)
    echo "$name round=$round idle open=$open of=$idle" \
        "bytes_each=$(calc 0 "($after - $before) / ($open + 0.001)") resident_mib=$(calc 1 "$after / 1048576")"
    exec 9>&-
    kill $holder 2> /dev/null || true
    wait $holder || true
    rm -f "$fifo" "$out"
}

echo "# $(uname -sr), $(nproc) processors, $(awk '/^model name/ { sub(/.*: /, ""); print; exit }' /proc/cpuinfo)"
echo "# $("$lightwait" --version); tun2proxy $("$tun2proxy" --version | awk '{ print $2 }')"
echo "# rounds $rounds, idle $idle; descriptors $(ulimit -n); load $(cut -d" " -f1-3 /proc/loadavg)"
for round in $(seq "$rounds"); do
    for which in lightwait tun2proxy; do
        for what in "bulk 1" "bulk 100" "connect 1" "connect 64" hold; do
            # What is kept of a connection is the same each time.
            if [ "$what" = hold ] && [ "$round" != 1 ]; then continue; fi
            begin $which
            $what
            end
        done
    done
done
