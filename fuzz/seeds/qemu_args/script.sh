#!/bin/bash
# start my VM
taskset -c 0-3 qemu-system-x86_64 -enable-kvm -name "my vm",process=x \
  -M q35,accel=kvm,hpet=off -cpu host,kvm-hint-dedicated=on,+invtsc \
  -smp 4,sockets=1,cores=2,threads=2 -m 8G -overcommit cpu-pm=on \
  -object memory-backend-file,id=m0,size=8G,mem-path=/dev/hugepages,share=on,prealloc=on \
  -numa node,memdev=m0,cpus=0-3 -object iothread,id=io0 \
  -drive file=/var/lib/a.qcow2,if=none,id=d,format=qcow2,cache=none,aio=native \
  -device virtio-blk-pci,drive=d,iothread=io0,num-queues=4,addr=0x5 \
  -netdev tap,id=n,ifname=tap0,script=no,downscript=no,vhost=on,queues=4 -device virtio-net-pci,netdev=n,mq=on,vectors=10 -vnc :0
