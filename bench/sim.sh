#!/usr/bin/env bash
# How fast the simulator is: events a second in a storm of pause exits on 80 pCPUs;
# and, beside SimSo, a simulator of multi-core scheduling in Python, jobs a second of
# 16 periodic tasks (1 ms each 10 ms) on 4 processors. Prints figures and a ratio,
# asserts nothing about them; without its peer it ends with 1.
#
# Usage: bench/sim.sh
#
# Both run what they are: SimSo global EDF without costs, vmlab Linux's EEVDF with
# switches, wake-ups and idle states that cost.
set -euo pipefail
cd "$(dirname "$0")/.."
simso_version=0.8.5
work=${XDG_CACHE_HOME:-$HOME/.cache}/vmlab/bench

ours=$(cargo run --quiet --release -p sim --example events)
echo "$ours"

if ! [ -x "$work/simso/bin/python" ]; then
	mkdir -p "$work"
	# SimPy 2, on which it stands, needs the setuptools that Python had then.
	python3 -m venv "$work/simso" &&
		"$work/simso/bin/pip" install -q "simso==$simso_version" setuptools || {
		rm -rf "$work/simso"
		echo "sim.sh: no SimSo to compare with: pip could not install it" >&2
		exit 1
	}
fi
theirs=$("$work/simso/bin/python" bench/sim_simso.py) || {
	echo "sim.sh: no SimSo to compare with: it does not run" >&2
	exit 1
}
echo "$theirs"
awk '/^jobs_per_s/ { ours = $2 } /^simso_jobs_per_s/ { theirs = $2 }
	END { printf "ratio to SimSo: %.1f\n", ours / theirs }' <<<"$ours
$theirs"
