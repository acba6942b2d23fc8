#!/bin/sh
# Draws pacing.svg: 45 Mbit/s that come in bursts of half a megabyte, through a bridge that paces them and through one that
# does not. Needs root, iperf3, tcpdump and ethtool; takes 15 seconds. Usage: docs/pictures/pacing.sh [PATH-OF-SOFTCLOCK]
set -eu
softclock=$(realpath "${1:-target/release/softclock}")
picture=$(realpath "$(dirname "$0")")/pacing.svg
work=$(mktemp -d)
from=sc-from-$$ bridge=sc-bridge-$$ to=sc-to-$$
finish() {
    for namespace in "$from" "$bridge" "$to"; do
        ip netns pids "$namespace" | xargs -r kill 2>/dev/null || true
        ip netns del "$namespace" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

for namespace in "$from" "$bridge" "$to"; do
    ip netns add "$namespace"
    ip -n "$namespace" link set lo up
done
ip -n "$bridge" link add eth0 type veth peer name eth0 netns "$from"
ip -n "$bridge" link add eth1 type veth peer name eth0 netns "$to"
for end in "$from eth0" "$bridge eth0" "$bridge eth1" "$to eth0"; do
    set -- $end
    # Joined segments would be one frame in the capture.
    ip netns exec "$1" ethtool -K "$2" gro off tso off gso off tx off >/dev/null
    ip -n "$1" link set "$2" up
done
ip -n "$from" address add 10.0.0.1/24 dev eth0
ip -n "$to" address add 10.0.0.2/24 dev eth0

# Sends through the bridge that the arguments name, and captures what arrives.
send() {
    capture=$1
    shift
    ip netns exec "$bridge" "$softclock" "$@" >/dev/null 2>&1 &
    bridging=$!
    ip netns exec "$to" iperf3 -s -1 >/dev/null &
    ip netns exec "$to" tcpdump -i eth0 -Q in -s 96 -U -w "$work/$capture" tcp dst port 5201 2>/dev/null &
    capturing=$!
    sleep 1
    ip netns exec "$from" iperf3 -c 10.0.0.2 -b 45M/16 -l 32K -t 2 >/dev/null
    sleep 0.5
    kill "$capturing" "$bridging"
    wait
}
send not-paced wan eth0 eth1 --delay 0ms
send 'paced at 50 Mbit' pace eth0 eth1 --class 'default rate 50mbit'
cd "$work"
"$softclock" burst not-paced 'paced at 50 Mbit' --rate 60mbit --svg "$picture" | grep -E 'paced|most packets|p50'
