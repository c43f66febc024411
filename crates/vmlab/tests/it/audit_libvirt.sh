# The first process of namespaces of its own: a libvirtd that sees nothing of
# the machine's libvirt, one domain whose second vCPU is moved, and what vmlab
# ($1) finds. The pCPUs are $2 and $3.
set -eu
PATH=$PATH:/usr/sbin:/sbin
for folder in /run /etc/libvirt /var/lib /var/cache /var/log; do
    mount -t tmpfs none "$folder"
done
# Debian's libvirt-daemon alone brings none of them, nor the user and the group that
# it looks for before it reads who else shall run QEMU.
mkdir /var/lib/libvirt /var/cache/libvirt /var/log/libvirt
for database in passwd group; do
    cp /etc/$database /run/$database
    mount --bind /run/$database /etc/$database
done
getent passwd libvirt-qemu >/dev/null ||
    echo 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin' >>/run/passwd
getent group libvirt-qemu >/dev/null || echo 'libvirt-qemu:x:64055:' >>/run/group
# libvirt asks every QEMU that it finds what it can; one is wanted.
for program in /usr/bin/qemu-system-*; do
    [ "$program" = /usr/bin/qemu-system-x86_64 ] || mount --bind /dev/null "$program"
done
echo 'auth_unix_rw = "none"' >/etc/libvirt/libvirtd.conf
cat >/etc/libvirt/qemu.conf <<END
security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = [ ]
namespaces = [ ]
stdio_handler = "file"
END
cat >/run/domain.xml <<END
<domain type='qemu'>
  <name>moved</name>
  <memory unit='MiB'>64</memory>
  <vcpu>2</vcpu>
  <cputune>
    <vcpupin vcpu='0' cpuset='$2'/>
    <vcpupin vcpu='1' cpuset='$2'/>
    <emulatorpin cpuset='$3'/>
  </cputune>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>
END
libvirtd >/run/libvirtd.log 2>&1 &
daemon=$!
deadline=$(($(date +%s) + 120))
until [ -S /run/libvirt/libvirt-sock ]; do
    if ! kill -0 $daemon || [ "$(date +%s)" -gt $deadline ]; then
        cat /run/libvirtd.log >&2
        exit 1
    fi
    sleep 0.05
done
virsh -q -c qemu:///system create --paused /run/domain.xml >&2
pid=$(cat /run/libvirt/qemu/moved.pid)
for task in /proc/"$pid"/task/*; do
    case $(cat "$task"/comm) in
    CPU\ 1/*) taskset -cp "$3" "${task##*/}" >&2 ;;
    esac
done
"$1" lint --running --json || true
virsh -q -c qemu:///system destroy moved >&2
kill $daemon
wait $daemon
