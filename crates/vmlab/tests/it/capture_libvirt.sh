# Behind libvirtd.sh: a domain that vmlab ($1) captures, and what libvirt saves of it;
# all that vmlab says and makes goes to the folder $2.
cd "$2"
cat >/run/domain.xml <<XML
<domain type='qemu'>
  <name>web</name>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <interface type='user'>
      <mac address='52:54:00:11:22:33'/>
      <model type='virtio'/>
    </interface>
  </devices>
</domain>
XML
uri=qemu:///system
virsh -q -c $uri define /run/domain.xml >&2
virsh -q -c $uri start web >&2
"$1" capture --libvirt web --out captured --json >capture.json
virsh -q -c $uri domstate web >after-capture
"$1" capture --libvirt web --out interrupted 2>interrupted.err >&2 &
vmlab=$!
# The guest stands still: its memory is being written.
deadline=$(($(date +%s) + 120))
until [ "$(virsh -q -c $uri domstate web)" = paused ]; do
    [ "$(date +%s)" -lt $deadline ] && kill -0 $vmlab || break
done
kill -INT $vmlab 2>/dev/null || true
wait $vmlab && echo 0 >interrupted.code || echo $? >interrupted.code
virsh -q -c $uri domstate web >after-interrupt
"$1" capture --libvirt none --out none 2>none.err || true
virsh -q -c $uri save web saved >&2
"$1" state edit saved --set virtio-net.mac=52:54:00:12:34:56 -o edited
# libvirt starts it again, from the edited file.
virsh -q -c $uri restore edited >&2
virsh -q -c $uri domstate web >after-restore
"$1" capture --libvirt web --no-core --out restored >&2
virsh -q -c $uri destroy web >&2
kill $daemon
wait $daemon
