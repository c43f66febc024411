gA-smp 2,threads=2 -object memory-backend-ram,id=m0 -numa node,cpus=0,memdev=m0
# is: vCPU 0: pCPU 1; cpuset 1-3; quota 5 of 10 µs
# asked: vCPU 0: pCPUs 2
# is: vCPU 1: any pCPU (0-31); real-time
# is: emulator: pCPUs 0-1
# is: memory m0: 64 MiB on node 0, 8 MiB on node 1; pages of 4 KiB; 2 MiB in transparent huge pages; bound; mergeable
# is: topology: sockets=1,dies=1,clusters=1,cores=1,threads=2
# is: locked: 1 KiB of 2 MiB
