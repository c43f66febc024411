#!/usr/bin/env bash
# What exits cost as vmlab's thin guest finds it and as kvm-unit-tests' vmexit does: in one
# boot of one emulated KVM host with one pCPU, whose clock is its count of instructions.
# Prints both in instructions an operation and how far they are apart; asserts nothing.
# Five minutes of one pCPU, most of them vmexit's: it repeats each until 2^30 cycles are over.
#
# Usage: bench/kvm-unit-tests.sh [SOURCES]
#
# SOURCES is a folder with kvm-unit-tests' sources, else it is cloned from $KVM_UNIT_TESTS
# (its repository by default) into vmlab's cache. Built in a copy; needs gcc and make.
#
# vmexit's vmcall asks for the processor's vendor each time, which executes two CPUIDs beside
# the hypercall: it is compared with the sum. Its ipi needs two vCPUs, and what it takes is
# when one pCPU changes from one to the other. Its IPI to itself is sent with interrupts off
# and let in by STI, as the thin guest's irq-window is.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
vmlab=${VMLAB:-target/release/vmlab}
static=${VMLAB_STATIC:-target/x86_64-unknown-linux-musl/release/vmlab}
origin=${KVM_UNIT_TESTS:-https://gitlab.com/kvm-unit-tests/kvm-unit-tests.git}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmlab/kvm-unit-tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "kvm-unit-tests.sh: $1" >&2
	exit 1
}

[ -x "$vmlab" ] || fail "there is no $vmlab: make build, or name it in VMLAB"
[ -f "$static" ] && [ -x "$static" ] || fail "there is no $static: make static, or name it in VMLAB_STATIC"
sources=${1:-$cache}
if [ $# = 0 ] && [ ! -d "$cache" ]; then
	git clone --quiet --depth 1 "$origin" "$cache" ||
		fail "$origin can't be cloned: name a folder with kvm-unit-tests' sources, as in bench/kvm-unit-tests.sh FOLDER"
fi
[ -e "$sources/x86/vmexit.c" ] || fail "$sources has no x86/vmexit.c: it is not kvm-unit-tests"

cp -a "$sources" "$work/kut"
(cd "$work/kut" && { [ ! -e config.mak ] || make -s distclean; } &&
	./configure --arch=x86_64 && make -s x86/vmexit.flat) >"$work/build" 2>&1 || {
	tail -n 20 "$work/build" >&2
	fail "kvm-unit-tests can't be built"
}

# What vmexit does, and the operation that does the same.
tests=(cpuid inl_from_kernel inl_from_qemu vmcall self_ipi_sti_nop)
operations=(cpuid pio-kernel pio-qemu hypercall+cpuid+cpuid irq-window)

"$vmlab" image build host-debian-12 >/dev/null
image=$("$vmlab" image show host-debian-12 | sed -n 's/^Folder *//p')
cmdline=$("$vmlab" image show host-debian-12 | sed -n 's/^Parameters *//p')
root=$image/root.ext4
piece=$((2 << 20))
bytes=$(stat -c %s "$root")
if [ $((bytes % piece)) != 0 ]; then
	cp --sparse=always "$root" "$work/root.ext4"
	root=$work/root.ext4
	bytes=$(((bytes / piece + 1) * piece))
	truncate -s "$bytes" "$root"
fi

# The host that `vmlab run --deterministic` boots, with another program for its one order.
bin=$work/tree/seed/usr/local/bin
mkdir -p "$work/tree/lib" "$bin" "$work/tree/seed/usr/local/sbin" "$work/tree/seed/study"
kernel=$(debugfs -R "ls -p /lib/modules" "$root" 2>/dev/null | cut -d/ -f6 | grep -m1 '^[0-9]')
for module in nvdimm/libnvdimm nvdimm/nd_btt nvdimm/nd_pmem acpi/nfit/nfit; do
	debugfs -R "cat /lib/modules/$kernel/kernel/drivers/$module.ko" "$root" \
		>"$work/tree/lib/${module##*/}.ko" 2>/dev/null
done
install -m 755 crates/replica/src/repeatable-init.sh "$work/tree/init"
install -m 755 crates/replica/src/repeatable-host.sh "$work/tree/seed/usr/local/sbin/repeatable-host"
install -m 755 "$static" "$bin/vmlab-static"
cp "$work/kut/x86/vmexit.flat" "$work/tree/seed/study"
: >"$work/tree/seed/study/asked"
cat >"$bin/vmlab" <<'END'
#!/bin/sh
# $1 is far-side.
vmlab-static calibrate --accel kvm --boots 1 --json --vcpus 1 \
	--only cpuid,pio-kernel,pio-qemu,hypercall,irq-window 2>/dev/console
echo theirs
qemu-system-x86_64 -accel kvm -machine q35 -cpu host -m 256 -nodefaults -display none \
	-serial stdio -device isa-debug-exit,iobase=0xf4,iosize=4 -kernel /study/vmexit.flat \
	-append "cpuid inl_from_kernel inl_from_qemu vmcall self_ipi_sti_nop" 2>/dev/console
END
chmod 755 "$bin/vmlab"
{
	cat "$image/initrd.cpio"
	(cd "$work/tree" && find . -mindepth 1 | cpio --quiet -o -H newc)
} >"$work/initrd"

qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
	-machine q35,nvdimm=on -cpu EPYC-Rome,+svm,-cx16 -smp 1 -accel tcg,thread=single \
	-icount shift=0,sleep=off -rtc base=2024-01-01T00:00:00,clock=vm -seed 1 \
	-m "3072M,slots=1,maxmem=$((3072 + bytes / (1 << 20) + 2048))M" \
	-kernel "$image/vmlinuz" -initrd "$work/initrd" \
	-append "$cmdline tsc=reliable lpj=10000000" \
	-object "memory-backend-file,id=root,mem-path=$root,size=$bytes,share=off,readonly=on" \
	-device nvdimm,memdev=root,unarmed=on \
	-chardev "file,id=console,path=$work/console" -serial chardev:console \
	-chardev "file,id=told,path=$work/told" -serial chardev:told \
	>"$work/qemu" 2>&1 </dev/null || fail "the host's QEMU failed: $(grep -v warning: "$work/qemu" | tail -n 1)"

ours() {
	sed '/^theirs/,$d' "$work/told" | python3 -c '
import json, sys
prices = {price["operation"]: price["boots"] for price in json.load(sys.stdin)["prices"]}
cost = lambda name: prices[name][0]["median"] - prices["nothing"][0]["median"]
print(round(sum(map(cost, sys.argv[1].split("+")))))' "$1"
}
theirs() {
	# How often an interrupt came stands before its test where it was not once.
	sed '1,/^theirs/d' "$work/told" | tr -d '\r' |
		awk -v test="$1" '$1 ~ "^[0-9]*" test "$" { print $2 }'
}

echo "Instructions an operation, KVM's own included, on $("$vmlab" image show host-debian-12 | head -n 1):"
printf '%-21s %6s   %-16s %6s %8s\n' "thin guest" "" vmexit "" apart
for index in "${!tests[@]}"; do
	our=$(ours "${operations[index]}") their=$(theirs "${tests[index]}")
	if [ -z "$our" ] || [ -z "$their" ]; then
		tail -n 20 "$work/told" >&2
		tail -n 5 "$work/console" >&2
		fail "one of ${operations[index]}, ${tests[index]} was not measured"
	fi
	apart=$(awk -v a="$our" -v b="$their" 'BEGIN { printf "%+.1f %%", (a / b - 1) * 100 }')
	printf '%-21s %6s   %-16s %6s %8s\n' "${operations[index]}" "$our" "${tests[index]}" "$their" "$apart"
done
