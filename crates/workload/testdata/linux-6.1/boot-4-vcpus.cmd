sh -c dmesg
for comm in /proc/[0-9]*/comm; do
read -r name <"$comm" || continue
[ "$name" = qemu-ga ] || continue
echo "agent $(cut -d ' ' -f 22 "${comm%comm}stat")"
break
done 2>/dev/null
