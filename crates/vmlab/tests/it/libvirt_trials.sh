# Behind libvirtd.sh: vmlab ($1) runs the study in the folder $2 as domains, beside
# those of others. What there is to see is printed behind headings.
set +e
uri=qemu:///system
virsh="virsh -q -c $uri"
cd "$2"

# Somebody else's, one of them under a name like ours, and one of a run that is dead.
domain() {
    cat <<END
<domain type='qemu'>
  <name>$1</name>
  <metadata>$2</metadata>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>
END
}
owner='{"pid":1,"starttime_ticks":1,"boot_id":"of another boot","pid_namespace":1,"run_id":"dead"}'
domain web '' >/run/web.xml
domain vmlab-web "<other:owner xmlns:other='urn:other:1'>$owner</other:owner>" >/run/vmlab-web.xml
domain vmlab-dead-trial "<vmlab:owner xmlns:vmlab='urn:vmlab:owner:1'>$owner</vmlab:owner>" >/run/dead.xml
$virsh create --paused /run/web.xml
$virsh define /run/vmlab-web.xml
$virsh define /run/dead.xml
$virsh start --paused vmlab-dead-trial
echo "== would clean"
"$1" clean --dry-run --libvirt $uri
echo "== clean"
"$1" clean --libvirt $uri
echo "code $?"

# A domain of ours that runs, as soon as it does.
ours() {
    until $virsh list --name | grep -q '^vmlab-.*-trial$'; do
        kill -0 "$1" || return
        sleep 0.05
    done
}
none() {
    until [ -z "$($virsh list --all --name | grep '^vmlab-.*-trial$')" ]; do sleep 0.05; done
}
echo "== lint"
"$1" lint --libvirt $uri --json
echo "== killed"
"$1" run study.toml --on libvirt:$uri --out killed 2>/dev/null &
vmlab=$!
ours $vmlab
kill -KILL $vmlab
wait $vmlab
none
$virsh list --all --name | sort
echo "== interrupted"
"$1" run study.toml --on libvirt:$uri --out interrupted 2>/dev/null &
vmlab=$!
ours $vmlab
kill -TERM $vmlab
wait $vmlab
echo "code $?"
$virsh list --all --name | sort
echo "== resumed elsewhere"
"$1" run --resume interrupted --on libvirt:qemu:///session 2>&1
echo "== resumed"
"$1" run --resume interrupted >/dev/null
echo "code $?"
echo "== left"
"$1" clean --libvirt $uri
$virsh list --all --name | sort
echo "== no libvirtd"
$virsh destroy web >&2
kill $daemon
wait $daemon
"$1" check study.toml --on libvirt:$uri 2>&1
echo "code $?"
