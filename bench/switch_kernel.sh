#!/usr/bin/env bash
# Frames a second of 64 bytes through the Linux bridge, in a network namespace that
# ends with this: bench/switch's peer.
#
# Usage: bench/switch_kernel.sh tap|veth SENDER RECEIVER MS    (two pCPUs, a time)
set -euo pipefail
work=${XDG_CACHE_HOME:-$HOME/.cache}/vmlab/bench
source=$(dirname "$(realpath "$0")")/switch.c
mkdir -p "$work"
if [ "$source" -nt "$work/switch" ]; then
	cc -O2 -pthread -o "$work/switch" "$source"
fi
# shellcheck disable=SC2016
exec unshare --net bash -euc '
	way=$1 program=$2
	echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 || true
	echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 || true
	ip link add bridge type bridge
	for end in in out; do
		if [ "$way" = tap ]; then
			ip tuntap add "$end" mode tap
			port=$end
		else
			ip link add "$end" type veth peer name "b$end"
			ip link set "$end" up
			port=b$end
		fi
		ip link set "$port" master bridge
		ip link set "$port" up
	done
	ip link set bridge up
	exec "$program" "$way" in out "$3" "$4" "$5"
' bash "$1" "$work/switch" "$2" "$3" "$4"
