#!/bin/sh
# Runs the installed tools and keeps what they print, for the parsers' tests:
# <tool>-<version>/NAME.{cmd,stdout,stderr,status}. Needs rt-tests, sysbench,
# stress-ng and linux-perf of Debian 12, and root (SCHED_FIFO).
#
# Both streams go through pipes, as they do in a guest: some tools open
# /dev/stdout by name, which would truncate a regular file.
set -eu
cd "$(dirname "$0")"

# golden FOLDER NAME COMMAND...
golden() {
    base=$1/$2
    shift 2
    mkdir -p "$(dirname "$base")"
    printf '%s\n' "$*" >"$base.cmd"
    {
        {
            status=0
            "$@" 3>&- || status=$?
            echo "$status" >"$base.status"
        } 2>&1 >&3 | cat >"$base.stderr"
    } 3>&1 | cat >"$base.stdout"
}

rt=rt-tests-2.4
golden $rt hackbench-default hackbench -g 2 -f 20 -l 200 -s 100 -P
golden $rt hackbench-pipe-thread hackbench -g 1 -f 5 -l 2000 -s 64 -p -T
golden $rt hackbench-old-form hackbench 1 process 200
golden $rt hackbench-too-short hackbench -g 1 -f 1 -l 1 -s 1 -T
golden $rt hackbench-bad-option hackbench --nonsense
golden $rt hackbench-bad-value hackbench -g 2 -s 0
golden $rt hackbench-killed timeout -s KILL 0.3 hackbench -g 2 -f 20 -l 20000 -P
golden $rt hackbench-interrupted timeout -s INT 0.3 hackbench -g 2 -f 20 -l 20000 -P

cyclic='cyclictest --quiet --mlockall'
json='--histfile=/dev/null --json=/dev/stdout'
golden $rt cyclictest-default $cyclic --threads=2 --interval=200 --loops=10000 --histogram=100000 $json --priority=80 --affinity
golden $rt cyclictest-4-threads $cyclic --threads=4 --interval=500 --loops=2000 --histogram=100000 $json --policy=other
golden $rt cyclictest-overflow $cyclic --threads=2 --interval=500 --loops=2000 --histogram=100 $json --policy=other --affinity
golden $rt cyclictest-interrupted timeout -s INT 0.3 $cyclic --threads=2 --interval=500 --loops=20000 --histogram=1000 $json --priority=80 --affinity
golden $rt cyclictest-killed timeout -s KILL 0.3 $cyclic --threads=2 --interval=500 --loops=20000 --histogram=1000 $json --priority=80 --affinity
golden $rt cyclictest-bad-option cyclictest --nonsense
golden $rt cyclictest-bad-priority $cyclic --threads=1 --priority=500 --loops=2000 $json

perf=perf-6.1
golden $perf messaging-default perf bench sched messaging -g 2 -l 200
golden $perf messaging-pipe-thread perf bench sched messaging -g 2 -l 500 -p -t
golden $perf messaging-simple perf bench -f simple sched messaging -g 2 -l 200
golden $perf messaging-bad-option perf bench sched messaging --nonsense
golden $perf messaging-killed timeout -s KILL 0.3 perf bench sched messaging -g 2 -l 20000

sysbench=sysbench-1.0.20
golden $sysbench cpu-time sysbench cpu --threads=2 --time=1 --events=0 --cpu-max-prime=10000 run
golden $sysbench cpu-events sysbench cpu --threads=3 --time=0 --events=500 --cpu-max-prime=2000 run
golden $sysbench cpu-no-event-in-time sysbench cpu --threads=1 --time=1 --events=0 --cpu-max-prime=10000000 run
golden $sysbench cpu-bad-option sysbench cpu --nonsense=1 run
golden $sysbench cpu-bad-threads sysbench cpu --threads=0 --time=1 run
golden $sysbench cpu-interrupted timeout -s INT 0.3 sysbench cpu --threads=2 --time=1 --events=0 --cpu-max-prime=10000 run
golden $sysbench cpu-killed timeout -s KILL 0.3 sysbench cpu --threads=2 --time=1 --events=0 --cpu-max-prime=10000 run

stress=stress-ng-0.15.06
yaml='--no-rand-seed --metrics --yaml /dev/stdout'
golden $stress cpu-matrixprod stress-ng --cpu 2 --cpu-method matrixprod --timeout 1s $yaml
golden $stress pipe stress-ng --pipe 2 --timeout 1s $yaml
golden $stress mutex-log-only stress-ng --mutex 2 --timeout 1s --metrics
golden $stress switch-brief-log stress-ng --switch 2 --timeout 1s --metrics-brief
golden $stress log-to-stdout stress-ng --stdout --cpu 1 --timeout 1s --metrics-brief
golden $stress two-stressors stress-ng --cpu 1 --pipe 1 --timeout 1s $yaml
golden $stress no-metrics stress-ng --cpu 1 --timeout 1s --yaml /dev/stdout
golden $stress unknown-stressor stress-ng --nonsense 2 --timeout 1s $yaml
golden $stress unknown-method stress-ng --cpu 2 --cpu-method nonsense --timeout 1s $yaml
golden $stress skipped-stressor stress-ng --apparmor 2 --timeout 1s $yaml
golden $stress interrupted timeout -s INT 0.3 stress-ng --cpu 2 --cpu-method matrixprod --timeout 1s $yaml
golden $stress killed timeout -s KILL 0.3 stress-ng --cpu 2 --cpu-method matrixprod --timeout 1s $yaml

# serving COMMAND...: a server until `served`.
serving() {
    "$@" >/dev/null 2>&1 &
    server=$!
}
served() {
    kill "$server"
    wait "$server" || :
}
# listening PORT: waits until somebody does.
listening() {
    port=$(printf ':%04X ' "$1")
    until cat /proc/net/tcp /proc/net/tcp6 | grep -q "$port.* 0A "; do sleep 0.1; done
}

iperf=iperf3-3.12
serving iperf3 --server --port 5201
listening 5201
client='iperf3 --json --client 127.0.0.1 --port 5201 --time 1'
golden $iperf tcp $client --parallel 2
golden $iperf tcp-reverse $client --parallel 1 --reverse
golden $iperf udp $client --parallel 1 --udp --bitrate 50M
golden $iperf interrupted timeout -s INT 0.3 $client --parallel 1
served
golden $iperf refused $client --parallel 1

golden $sysbench memory sysbench memory --threads=2 --time=1 --memory-block-size=64K --memory-total-size=1000000G --memory-oper=write --memory-access-mode=seq --memory-scope=global run
golden $sysbench threads sysbench threads --threads=8 --time=1 --thread-yields=100 --thread-locks=4 run
golden $sysbench mutex sysbench mutex --threads=4 --time=0 --mutex-num=64 --mutex-locks=1000 --mutex-loops=1000 run
golden $sysbench memory-killed timeout -s KILL 0.3 sysbench memory --threads=2 --time=1 run

golden $perf pipe perf bench sched pipe -l 2000
golden $perf pipe-threads perf bench sched pipe -l 2000 -T
golden $perf syscall-basic perf bench syscall basic --loop 100000
golden $perf futex-hash perf bench futex hash --threads=2 --runtime=1
golden $perf futex-wake perf bench futex wake --threads=4
golden $perf memcpy perf bench mem memcpy --function=default --size=4MB --nr_loops=2
golden $perf numa-mem perf bench numa mem --nr_proc=1 --nr_threads=2 --mb_proc=32 --nr_secs=1

sockperf=sockperf-3.7
serving sockperf server --ip 0.0.0.0 --port 11111
until grep -q ':2B67 ' /proc/net/udp; do sleep 0.1; done
golden $sockperf ping-pong sockperf ping-pong --ip 127.0.0.1 --port 11111 --msg-size 64 --time 2
golden $sockperf under-load sockperf under-load --ip 127.0.0.1 --port 11111 --msg-size 64 --time 2 --mps 500
golden $sockperf throughput sockperf throughput --ip 127.0.0.1 --port 11111 --msg-size 64 --time 2
served
golden $sockperf refused sockperf ping-pong --ip 127.0.0.1 --port 11111 --msg-size 64 --time 1 --tcp

redis=redis-7.0
serving redis-server --port 6379 --save '' --dir /tmp
listening 6379
address='-h 127.0.0.1 -p 6379'
bench="timeout 30 redis-cli $address ping >/dev/null && exec redis-benchmark --csv $address -t get"
golden $redis get sh -c "$bench -n 2000 -c 5 -P 1 -d 64"
served
golden $redis no-server sh -c "$bench -n 2000 -c 5 -P 1 -d 64"

dbench=dbench-4.0
serving tbench_srv
listening 7003
golden $dbench tbench-2 tbench --loadfile=/usr/share/dbench/client.txt --timelimit=2 2 127.0.0.1
served
mkdir -p /scratch
golden $dbench dbench-2 dbench --loadfile=/usr/share/dbench/client.txt --timelimit=2 --directory /scratch 2

fio=fio-3.33
golden $fio randrw fio --output-format=json+ --name=vmlab --directory=/scratch --rw=randrw --ioengine=libaio --bs=4k --iodepth=32 --numjobs=1 --size=16m --time_based --runtime=1 --group_reporting --randseed=1 --direct=1
golden $fio missing-folder fio --output-format=json --name=vmlab --directory=/no/such --rw=read --size=1m
rm -rf /scratch

# Of `make probe`.
PATH=$PATH:$PWD/../../../target/probe/x86_64
golden vmlab-probe-0.1 wakeup vmlab-probe wakeup --pause-us 50 --seconds 0.2 --repeat 2

web=ab-2.3
mkdir -p /tmp/vmlab-www
yes vmlab | head -c 278 >/tmp/vmlab-www/index.html
serving python3 -m http.server --bind 127.0.0.1 --directory /tmp/vmlab-www 80
listening 80
golden $web static ab -q -n 200 -c 10 http://127.0.0.1:80/index.html
golden $web not-found ab -q -n 20 -c 2 http://127.0.0.1:80/no-such
served
golden $web refused ab -q -n 200 -c 10 http://127.0.0.1:80/index.html
rm -rf /tmp/vmlab-www

time=time-1.9
report='kernbench: %e %U %S %P %c %w'
golden $time build time -f "$report" sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done'
golden $time failed-build time -f "$report" false
