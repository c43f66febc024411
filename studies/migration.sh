#!/bin/sh
# What becomes of cpu-pm when a guest moves to another QEMU: VMs are started under
# libvirt, saved while they idle, and taken over by a QEMU that was told something else, on
# this host or on another one. A saved VM is a migration through a file: the same stream,
# the same checks.
#
#   sh migration.sh here DIR    both on this host
#   sh migration.sh give DIR    starts and saves them: DIR/NAME.save
#   sh migration.sh take DIR    takes over what another host gave
#
#   vmlab replica exec NAME -- sh -s here /scratch/moved <studies/migration.sh
#   vmlab replica exec NAME -- tar -C /scratch/moved -c results | tar -x
#   vmlab facts --fact cpu_pm results/*
#
# DIR/results has what `vmlab audit --json` reads from the living VMs, and libvirt's log of
# each: `vmlab facts` makes the table of both. It needs root, vmlab and its image
# debian-12. A libvirtd is started where none answers, and ended. No VM is left.
# LIMIT_S: how long VMs may take until they idle, 300 s.
set -eu
export LC_ALL=C PATH="$PATH:/usr/sbin"
say() { echo "$*" >&2; }
virsh() { command virsh -q -c qemu:///system "$@" >&2; }

what=${1:-} dir=${2:-}
case $what in here | give | take) ;; *) say "usage: migration.sh here|give|take DIR"; exit 2 ;; esac
[ -n "$dir" ] || { say "which folder?"; exit 2; }
image=$(echo "$HOME"/.cache/vmlab/images/debian-12-*/vmlinuz)
image=${image%% *}
image=${image%/vmlinuz}
[ -e "$image/vmlinuz" ] || { say "no image debian-12: vmlab image build debian-12"; exit 2; }
mkdir -p "$dir/results"
folder=$(mktemp -d)
daemons=
vms=
end() {
    for vm in $vms; do
        virsh destroy "$vm" 2>/dev/null || :
    done
    for daemon in $daemons; do
        kill "$daemon" && wait "$daemon" || :
    done
    rm -r "$folder"
}
trap end EXIT
trap 'exit 2' INT TERM

# Debian's libvirt-daemon alone brings no folders, in Debian 12 no configuration, and an
# emulated host has neither services nor a link to /run.
if ! virsh version 2>/dev/null; then
    mkdir -p /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /run/libvirt /var/run
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
            exit 2
        fi
        sleep 1
    done
fi

pid_of() { cat "/run/libvirt/qemu/$1.pid" 2>/dev/null; }
# Its halt exits; 0 where it does not run.
halts() { cat "/sys/kernel/debug/kvm/$(pid_of "$1")"-*/halt_exits 2>/dev/null || echo 0; }
# Waits until a VM without cpu-pm has halted so often, as the others would, or would have.
until_idle() {
    waited=0
    until [ "$(halts "$1")" -gt "$2" ]; do
        waited=$((waited + 1))
        [ $waited -lt "${LIMIT_S:-300}" ] || { say "$1 does not idle"; return; }
        sleep 1
    done
    sleep 10
}

# A VM that somebody else has is not touched, nor is its log.
is_free() {
    ! virsh dominfo "$1" 2>/dev/null || { say "there is a VM $1 already"; exit 2; }
}

# A VM named after its cpu-pm at the source and at the destination. A machine type that is
# said with its version is the same for all QEMUs that have it.
give() {
    name=$1
    cpu_pm=${name%%-to-*}
    is_free "$name"
    vmlab convert - --to libvirt >"$folder/$name.xml" <<END
qemu-system-x86_64 -name $name -accel kvm -machine pc-q35-7.2 -cpu host -smp 1 -m 256M \
    -kernel $image/vmlinuz -initrd $image/initrd.cpio -append "quiet panic=-1" \
    -drive file=$image/root.ext4,if=none,id=root,format=raw,readonly=on \
    -device virtio-blk-pci,drive=root,serial=vmlab-root -overcommit cpu-pm=on
END
    sed -i "s/cpu-pm=on/cpu-pm=$cpu_pm/" "$folder/$name.xml"
    rm -f "/var/log/libvirt/qemu/$name.log"
    vms="$vms $name"
    virsh create "$folder/$name.xml" || say "$name: does not start"
}

# QEMU before 3.0, as far as it matters here: without the option it says so and ends.
without_option=$folder/qemu-system-x86_64
cat >"$without_option" <<'END'
#!/bin/sh
case "$*" in *-overcommit\ cpu-pm=*)
    echo "qemu-system-x86_64: -overcommit: invalid option" >&2
    exit 1 ;;
esac
exec /usr/bin/qemu-system-x86_64 "$@"
END
chmod 755 "$without_option" "$folder"

take() {
    name=$(basename "$1" .save)
    cpu_pm=${name##*-to-}
    is_free "$name"
    command virsh -q -c qemu:///system save-image-dumpxml "$1" >"$folder/$name.xml"
    case $cpu_pm in
    without) sed -i "s|<emulator>.*<|<emulator>$without_option<|" "$folder/$name.xml" ;;
    *) sed -i "s/cpu-pm=o[nf]*/cpu-pm=$cpu_pm/" "$folder/$name.xml" ;;
    esac
    vms="$vms $name"
    virsh restore "$1" --xml "$folder/$name.xml" || say "$name: is not taken over"
}

if [ "$what" != take ]; then
    for name in off-to-off off-to-on on-to-off on-to-on on-to-without; do
        give $name
    done
    until_idle off-to-off 500
    for name in $vms; do
        if pid_of "$name" >/dev/null; then
            virsh save "$name" "$dir/$name.save" || say "$name: can't be saved"
        fi
    done
    vms=
fi
if [ "$what" != give ]; then
    for save in "$dir"/*.save; do
        take "$save"
    done
    until_idle off-to-off 100
    pids=
    for vm in $vms; do
        say "$vm: $(command virsh -q -c qemu:///system domstate --reason "$vm" 2>&1)"
        pids="$pids $(pid_of "$vm" || :)"
    done
    if [ -n "${pids% }" ]; then
        # Findings are no error here.
        vmlab audit --json $pids >"$dir/results/audit.json" || [ $? -eq 1 ]
    fi
fi
for log in /var/log/libvirt/qemu/*-to-*.log; do
    [ ! -e "$log" ] || cp "$log" "$dir/results"
done
