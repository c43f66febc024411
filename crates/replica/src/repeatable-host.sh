#!/bin/busybox sh
# Second stage and PID 1: sets up as much of a host as a study needs that nobody
# reaches from outside, runs it, ends the machine.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mkdir /dev/shm /dev/pts /dev/hugepages
mount -a
mkdir -p /run/vmlab
while read -r module; do
	modprobe "$module" || echo "vmlab: no module $module"
done </etc/modules
ln -s /proc/self/fd /dev/fd
for link in 0:stdin 1:stdout 2:stderr; do
	ln -s "fd/${link%:*}" "/dev/${link#*:}"
done
echo "+cpuset +cpu +memory +io +pids" >/sys/fs/cgroup/cgroup.subtree_control
ifconfig lo up
hostname repeatable
for disk in /dev/pmem*; do
	folder=/run/vmlab/${disk##*/}
	mkdir "$folder"
	mount -t ext4 -o ro,noload "$disk" "$folder"
	for image in "$folder"/*/manifest.json; do
		[ -e "$image" ] && ln -s "${image%/*}" /root/.cache/vmlab/images
	done
done
# Bytes are to arrive as they are sent.
stty -F /dev/ttyS1 raw -echo
echo "vmlab: the host is up"
cd /study
vmlab far-side </study/asked >/dev/ttyS1
echo "vmlab: the far side ended with code $?"
poweroff -f
