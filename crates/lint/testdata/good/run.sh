#!/bin/sh
# A pinned guest on huge pages.
set -e
IMAGE=disk.raw
taskset -c 1,17,2,18 qemu-system-x86_64 -name guest=tuned,debug-threads=on \
  -machine q35,accel=kvm,memory-backend=m0 -cpu host,kvm-hint-dedicated=on \
  -smp 4,sockets=1,cores=2,threads=2 -m 4096 \
  -object memory-backend-memfd,id=m0,size=4G,hugetlb=on,hugetlbsize=2M,prealloc=on,host-nodes=0,policy=bind \
  -object iothread,id=io0 \
  -drive "file=$IMAGE,format=raw,if=none,id=d0,cache=none,aio=native" \
  -device virtio-blk-pci,drive=d0,iothread=io0,num-queues=4 \
  -netdev tap,id=n0,vhost=on,queues=4 -device virtio-net-pci,netdev=n0,mq=on,vectors=10 \
  -overcommit cpu-pm=on -display none
