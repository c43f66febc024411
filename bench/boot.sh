#!/usr/bin/env bash
# From the spawn of QEMU to a guest that answers: raw QEMU with a bare busybox
# initrd, vmlab's builtin guest, and virtme-ng, in turns. Prints seconds and
# ratios, asserts nothing about them; without its peer it ends with 1.
#
# Usage: bench/boot.sh [ROUNDS]
#
# All three run under emulation, one vCPU, 512 MiB. vmlab and the floor boot
# Debian's cloud kernel. That one has no 9p, which virtme-ng needs for a root
# that is a folder, so virtme-ng boots Debian's generic kernel and an unpacked
# Debian that this script makes once.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
virtme_version=1.42
work=${XDG_CACHE_HOME:-$HOME/.cache}/vmlab/bench
mirror=${VMLAB_DEBIAN_MIRROR:-http://deb.debian.org/debian}

# lost WHY: the benchmark goes on without its peer, and says so at its end.
peer_lost=
lost() {
	peer_lost=$1
	echo "boot.sh: no virtme-ng to compare with: $1" >&2
}

# Makes $work/venv and $work/root; says why if it can't.
prepare_virtme() {
	mkdir -p "$work/tools"
	# virtme-ng packs its initial RAM disk around a static one.
	if ! command -v busybox >/dev/null; then
		lost "there is no busybox (scripts/install-deps bench installs it)"
		return 1
	fi
	if ! [ -x "$work/venv/bin/vng" ]; then
		python3 -m venv "$work/venv" &&
			"$work/venv/bin/pip" install -q "virtme-ng==$virtme_version" || {
			lost "pip could not install it"
			return 1
		}
	fi
	if ! [ -d "$work/root" ]; then
		rm -rf "$work/root.new"
		mmdebstrap --quiet --variant=extract --mode=chrootless --architectures=amd64 \
			--include=linux-image-amd64,bash,dash,coreutils,util-linux,udev,kmod,mount,iproute2,procps,grep,sed,hostname,login,passwd,libc-bin,systemd,base-files \
			bookworm "$work/root.new" "$mirror" || {
			lost "no Debian to boot from $mirror"
			return 1
		}
		mkdir -p "$work"/root.new/{home,media,mnt,opt,root,srv}
		echo 'root::0:0:root:/root:/bin/bash' >"$work/root.new/etc/passwd"
		printf 'root:x:0:\ntty:x:5:\n' >"$work/root.new/etc/group"
		ln -sf "$work/root.new/bin/kmod" "$work/tools/depmod"
		"$work/tools/depmod" -b "$work/root.new" "$(ls "$work/root.new/lib/modules")"
		mv "$work/root.new" "$work/root"
	fi
	# virtme-ng asks modprobe which modules it needs; not every host has it.
	ln -sf "$work/root/bin/kmod" "$work/tools/modprobe"
}

cargo build --quiet --release -p guest --example boot_bench
boot_bench=${CARGO_TARGET_DIR:-target}/release/examples/boot_bench
prepare_virtme || true

results=$(mktemp)
trap 'rm -f "$results"' EXIT
for round in $(seq "$rounds"); do
	line=$("$boot_bench" 1 | sed -n 1p)
	peer=-
	if [ -z "$peer_lost" ]; then
		peer=$(PATH="$PATH:$work/tools" python3 bench/boot_virtme.py "$work") || {
			lost "it started no guest in round $round"
			peer=-
		}
	fi
	[ "$peer" = - ] && shown="no virtme-ng" || shown="virtme-ng $peer s"
	echo "round $round: ${line#round 0: }, $shown"
	echo "$line $peer" | sed 's/[^0-9. -]//g' | awk '{ print $2, $3, $NF }' >>"$results"
done

python3 - "$results" <<'END'
import statistics, sys

rows = [line.split() for line in open(sys.argv[1])]
floor, vmlab = (statistics.median(float(row[i]) for row in rows) for i in (0, 1))
print(f"raw floor, spawn to READY          {floor:.3f} s")
print(f"vmlab, spawn to the agent's answer {vmlab:.3f} s ({vmlab / floor:.3f} x the floor)")
peers = [float(row[2]) for row in rows if row[2] != "-"]
if peers:
    peer = statistics.median(peers)
    print(f"virtme-ng, spawn to READY          {peer:.3f} s ({peer / vmlab:.2f} x vmlab)")
END

if [ -n "$peer_lost" ]; then
	echo "boot.sh: virtme-ng was lost: $peer_lost" >&2
	exit 1
fi
