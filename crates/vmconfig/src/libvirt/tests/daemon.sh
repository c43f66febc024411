# Behind libvirtd.sh: virsh, whose commands come from standard input.
virsh -q -c qemu:///system 2>&1
kill $daemon
wait $daemon
