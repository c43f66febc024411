#!/bin/sh
# What this host's libvirt makes of VMs with cpu-pm: each is defined, started and
# left to idle, then `vmlab audit` reads from the living QEMU what is in force. Its
# JSON goes to standard output, for `vmlab facts`; all else to standard error.
#
#   vmlab replica exec NAME -- sh -s <studies/cpu-pm-libvirt.sh >NAME.json
#   ssh root@server sh -s <studies/cpu-pm-libvirt.sh >server.json
#
# It needs root, vmlab and its image debian-12. A libvirtd is started where none
# answers, and ended. Whatever starts is destroyed, and no definition is left.
# LIMIT_S: how long VMs may take until they idle, 300 s.
set -eu
export LC_ALL=C PATH="$PATH:/usr/sbin"
say() { echo "$*" >&2; }
virsh() { command virsh -q -c qemu:///system "$@" >&2; }

image=$(echo "$HOME"/.cache/vmlab/images/debian-12-*/vmlinuz)
image=${image%% *}
image=${image%/vmlinuz}
[ -e "$image/vmlinuz" ] || { say "no image debian-12: vmlab image build debian-12"; exit 2; }
folder=$(mktemp -d)
daemons=
vms=
end() {
    for vm in $vms; do
        virsh destroy "$vm" 2>/dev/null || :
        virsh undefine "$vm" 2>/dev/null || :
    done
    for daemon in $daemons; do
        kill "$daemon" && wait "$daemon" || :
    done
    rm -r "$folder"
}
trap end EXIT
trap 'exit 2' INT TERM

# Debian's libvirt-daemon alone brings no folders, in Debian 12 no configuration,
# and an emulated host has neither services nor a link to /run.
if ! virsh version 2>/dev/null; then
    mkdir -p /var/lib/libvirt /var/cache/libvirt /var/log/libvirt
    mkdir -p /run/libvirt /var/run
    [ /var/run -ef /run ] || ln -sfn /run/libvirt /var/run/libvirt
    [ -e /etc/libvirt/libvirtd.conf ] ||
        echo 'auth_unix_rw = "none"' >/etc/libvirt/libvirtd.conf
    [ -e /etc/libvirt/qemu.conf ] || cat >/etc/libvirt/qemu.conf <<END
security_driver = "none"
user = "root"
group = "root"
stdio_handler = "file"
END
    # It keeps the logs, where libvirtd is not told to.
    if command -v virtlogd >/dev/null && [ ! -S /run/libvirt/virtlogd-sock ]; then
        virtlogd >"$folder/virtlogd.log" 2>&1 &
        daemons=$!
    fi
    libvirtd >"$folder/libvirtd.log" 2>&1 &
    daemon=$!
    daemons="$daemons $daemon"
    tries=0
    until virsh version 2>/dev/null; do
        tries=$((tries + 1))
        if ! kill -0 $daemon || [ $tries -gt 120 ]; then
            cat "$folder/libvirtd.log" >&2
            virsh version || :
            exit 2
        fi
        sleep 1
    done
fi

# Defines and starts a VM of so many vCPUs with a processor model.
try() {
    name=$1 model=$2 vcpus=$3
    shift 3
    if virsh dominfo "$name" 2>/dev/null; then
        say "libvirt has a domain $name already"
        exit 2
    fi
    vmlab convert - --to libvirt >"$folder/$name.xml" <<END
qemu-system-x86_64 -name $name -accel kvm -machine q35 -cpu $model -smp $vcpus -m 256M \
    -kernel $image/vmlinuz -initrd $image/initrd.cpio -append "quiet panic=-1" \
    -drive file=$image/root.ext4,if=none,id=root,format=raw,readonly=on \
    -device virtio-blk-pci,drive=root,serial=vmlab-root $*
END
    if virsh define "$folder/$name.xml"; then
        vms="$vms $name"
        virsh start "$name" || :
    else
        say "$name: libvirt can't define it"
    fi
}
pid_of() { cat "/run/libvirt/qemu/$1.pid" 2>/dev/null; }
# Its halt exits; 0 where it does not run.
halts() { cat "/sys/kernel/debug/kvm/$(pid_of "$1")"-*/halt_exits 2>/dev/null || echo 0; }
try libvirt-on host 1 -overcommit cpu-pm=on
try libvirt-on-model qemu64 1 -overcommit cpu-pm=on
try libvirt-on-smp host 2 -overcommit cpu-pm=on
# The same without cpu-pm shows that this guest halts, and when it does.
try libvirt-off host 1
pid_of libvirt-off >/dev/null || { say "libvirt-off does not run"; exit 1; }
waited=0
until [ "$(halts libvirt-off)" -gt 500 ]; do
    waited=$((waited + 1))
    [ $waited -lt "${LIMIT_S:-300}" ] || { say "libvirt-off does not idle"; break; }
    sleep 1
done
sleep 10
pids=
for vm in $vms; do
    say "$vm: $(command virsh -q -c qemu:///system domstate --reason "$vm")"
    pids="$pids $(pid_of "$vm" || :)"
done
[ -n "${pids% }" ] || { say "no VM runs"; exit 1; }
# Findings are no error here.
vmlab audit --json $pids || [ $? -eq 1 ]
