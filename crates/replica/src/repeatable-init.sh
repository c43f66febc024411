#!/bin/busybox sh
# First stage, instead of the image's own: root and guests' images are not disks,
# which answer when the machine outside likes, but memory.
/bin/busybox mount -t devtmpfs dev /dev
for module in libnvdimm nd_btt nd_pmem nfit overlay; do
	insmod "/lib/$module.ko" || echo "vmlab: cannot load $module"
done
# Firmware numbers them as it likes.
for disk in /dev/pmem*; do
	/bin/busybox mount -t ext4 -o ro,noload "$disk" /disk || continue
	[ -e /disk/etc/modules ] && break
	/bin/busybox umount /disk
done
[ -e /disk/etc/modules ] || echo "vmlab: none of" /dev/pmem* "is the root image"
/bin/busybox mount -t tmpfs -o mode=755 ram /ram
mkdir /ram/upper /ram/work
/bin/busybox mount -t overlay \
	-o lowerdir=/seed:/disk,upperdir=/ram/upper,workdir=/ram/work root /root
/bin/busybox mount --move /dev /root/dev
cd /root
/bin/busybox mount --move . /
exec /bin/busybox chroot . /usr/local/sbin/repeatable-host
