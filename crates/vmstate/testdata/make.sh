#!/bin/sh
# Makes the streams in this folder: the devices of VMs whose firmware has begun to run,
# without the contents of memory. VMLAB is the vmlab to capture them with; each QEMU
# that is here has a folder of its version.
#
# Usage: VMLAB=target/debug/vmlab crates/vmstate/testdata/make.sh [QEMU...]
set -eu
cd "$(dirname "$0")"
vmlab=${VMLAB:-vmlab}
[ $# -gt 0 ] || set -- qemu-system-x86_64 qemu-system-aarch64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for qemu; do
    version=$("$qemu" --version | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p')
    case $qemu in
    *x86_64) arch=x86-64 words="-machine q35" ;;
    *aarch64) arch=arm64 words="-machine virt -cpu cortex-a57" ;;
    esac
    # One NIC on PCI, one behind a port of PCI Express.
    "$qemu" $words -accel tcg -m 64 -nodefaults -display none \
        -device virtio-net-pci,mac=52:54:00:11:22:33 \
        -device pcie-root-port,id=port0,chassis=1 \
        -device virtio-net-pci,bus=port0,mac=52:54:00:11:22:44 \
        -qmp "unix:$work/qmp,server=on,wait=off" &
    pid=$!
    until [ -S "$work/qmp" ]; do kill -0 $pid; sleep 0.1; done
    "$vmlab" capture --qmp "$work/qmp" --no-core --end --out "$work/out"
    wait $pid
    mkdir -p "qemu-$version"
    mv "$work/out/devices.vmstate" "qemu-$version/$arch.vmstate"
    rm -rf "$work/out" "$work/qmp"
done
