# Behind libvirtd.sh: one domain whose second vCPU is moved, and what vmlab ($1)
# finds. The pCPUs are $2 and $3.
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
virsh -q -c qemu:///system create --paused /run/domain.xml >&2
pid=$(cat /run/libvirt/qemu/moved.pid)
for task in /proc/"$pid"/task/*; do
    case $(cat "$task"/comm) in
    CPU\ 1/*) taskset -cp "$3" "${task##*/}" >&2 ;;
    esac
done
"$1" lint --running --json || true
# By the libvirt that runs it: its status file, which only root reads, is not needed, and
# who is not its own is left out.
qemu-system-x86_64 -machine q35 -smp 1 -m 32 -name other -S -display none -daemonize \
    -pidfile /run/other.pid
mv /run/libvirt/qemu/moved.xml /run/libvirt/qemu/moved.away
echo ----
"$1" audit --libvirt qemu:///system --json || true
kill "$(cat /run/other.pid)"
mv /run/libvirt/qemu/moved.away /run/libvirt/qemu/moved.xml
virsh -q -c qemu:///system destroy moved >&2
kill $daemon
wait $daemon
