# A libvirtd in namespaces of its own: it sees nothing of the machine's libvirt, and leaves
# nothing.
set -eu
PATH=$PATH:/usr/sbin:/sbin
for folder in /run /etc/libvirt /var/lib /var/cache /var/log; do
    mount -t tmpfs none "$folder"
done
# Debian's libvirt-daemon alone brings none of them.
mkdir /var/lib/libvirt /var/cache/libvirt /var/log/libvirt
# Nor the user and the group that it looks for before it reads who else shall run
# QEMU.
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
# It looks for them when it starts.
for size in 2M 1G; do
    mkdir /run/hugepages-$size
    mount -t hugetlbfs -o pagesize=$size none /run/hugepages-$size
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
