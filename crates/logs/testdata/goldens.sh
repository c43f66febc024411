#!/bin/sh
# Runs the installed tools and keeps what a shell session shows of them:
# <tool>-<version>/NAME.log, for the readers of logs (src). Needs the
# tools of Debian 12 that `scripts/install-deps goldens` installs.
set -u
cd "$(dirname "$0")"
here=$PWD
# An output of a tool that is not there would replace a golden.
for tool in cyclictest perf sysbench stress-ng fio dbench iperf iperf3 sockperf redis-server \
    redis-benchmark mpstat vmstat hyperfine /usr/bin/time; do
    command -v "$tool" >/dev/null || missing="${missing:-} $tool"
done
if [ -n "${missing:-}" ]; then
    echo "goldens.sh: missing:$missing; run scripts/install-deps goldens" >&2
    exit 2
fi
scratch=$(mktemp -d)
cd "$scratch"
trap 'rm -rf "$scratch"' EXIT

# log FOLDER NAME COMMAND...
log() {
    mkdir -p "$here/$1"
    out=$here/$1/$2.log
    shift 2
    # Through a pipe: tools open /dev/stdout by name.
    sh -c "$*" 2>&1 | cat >"$out"
    # What names this machine is none of a log's business.
    sed -i "s|$scratch|/tmp/bench|g; s|$(hostname)|vm|g" "$out"
}

rt=rt-tests-2.4
log $rt cyclictest-lines 'cyclictest -q -t 2 -i 500 -l 500 -p 80 -m'
log $rt cyclictest-updates 'cyclictest -t 3 -i 500 -l 400 -m -u'
log $rt cyclictest-histogram 'cyclictest -q -t 2 -i 300 -l 600 -p 80 -m -h 60'
log $rt cyclictest-histogram-overflow 'cyclictest -q -t 2 -i 300 -l 500 -p 80 -m -H 12'
log $rt cyclictest-nanoseconds 'cyclictest -q -N -t 1 -i 500 -l 300 -m'
log $rt cyclictest-json 'cyclictest -q -t 2 -i 300 -l 300 -p 80 -m -h 40 --histfile=/dev/null --json=/dev/stdout'
log $rt cyclictest-verbose 'cyclictest -v -t 1 -i 500 -l 20 -m'

perf=perf-6.1
log $perf sched-pipe 'perf bench sched pipe -l 20000; perf bench -f simple sched pipe -l 10000; perf bench sched pipe -T -l 10000'
log $perf sched-messaging 'perf bench sched messaging -g 2 -l 100; perf bench sched messaging -t -p -g 1 -l 100'
log $perf syscall 'perf bench syscall basic -l 300000'
log $perf mem-memcpy 'perf bench mem memcpy -s 4MB -l 10'
log $perf mem-memset 'perf bench mem memset -s 4MB -l 10 -f default; perf bench mem memset -s 1MB -f default -c'
log $perf futex-hash 'perf bench futex hash -r 1 -t 2 -f 64'
log $perf futex-wake 'perf bench futex wake -t 4'
log $perf futex-wake-parallel 'perf bench futex wake-parallel -t 4'
log $perf futex-requeue 'perf bench futex requeue -t 4'
log $perf futex-lock-pi 'perf bench futex lock-pi -r 1 -t 2'
log $perf epoll-wait 'perf bench epoll wait -r 1 -t 2 -f 4'
log $perf epoll-ctl 'perf bench epoll ctl -r 1 -t 2'
log $perf numa 'perf bench numa mem -p 1 -t 2 -P 16 -s 1 -z -d -q'
log $perf internals 'perf bench internals synthesize -s -i 20; perf bench internals kallsyms-parse -i 2; perf bench internals inject-build-id -i 2 -m 5 -n 10'
log $perf breakpoint 'perf bench breakpoint thread; perf bench breakpoint enable'
log $perf evlist-open-close 'perf bench internals evlist-open-close -i 5'

sb=sysbench-1.0.20
log $sb cpu 'sysbench cpu --threads=2 --time=1 run'
log $sb memory 'sysbench memory --threads=2 --time=1 --memory-total-size=1G run'
log $sb threads 'sysbench threads --threads=2 --time=1 run'
log $sb mutex 'sysbench mutex --threads=2 --mutex-num=64 --mutex-locks=5000 run'
log $sb fileio 'sysbench fileio --file-total-size=16M --file-num=4 prepare; sysbench fileio --file-total-size=16M --file-num=4 --file-test-mode=rndrw --time=1 run; sysbench fileio --file-total-size=16M --file-num=4 --file-test-mode=seqrd --time=1 --report-interval=1 --percentile=99 run'
log $sb cpu-histogram 'sysbench cpu --time=1 --histogram --report-interval=1 run'
log $sb old-options 'sysbench --test=cpu --num-threads=2 --max-time=1 run'

sn=stress-ng-0.15.06
log $sn metrics 'stress-ng --cpu 1 --switch 1 --timeout 1s --metrics'
log $sn metrics-brief 'stress-ng --cpu 1 --pipe 1 --timeout 1s --metrics-brief --times'
log $sn yaml 'stress-ng --cpu 1 --mutex 1 --timeout 1s --metrics -Y /dev/stdout'
log $sn misc 'stress-ng --memcpy 1 --timer 1 --fork 1 --timeout 1s --metrics'
log $sn perf 'stress-ng --cpu 1 --timeout 1s --metrics-brief --perf -v'

fio=fio-3.33
job='fio --name=randrw --filename=f --size=4M --rw=randrw --bs=4k --ioengine=psync --runtime=1'
log $fio normal "$job"
log $fio json "$job --output-format=json"
log $fio json-plus "$job --output-format=json+ --rw=read"
log $fio terse "$job --minimal; $job --output-format=terse --terse-version=5; $job --output-format=terse --terse-version=4; $job --output-format=terse --terse-version=2"
log $fio json-and-normal "$job --output-format=normal,json,terse"
log $fio two-jobs "fio --size=4M --filename=f --ioengine=libaio --iodepth=8 --direct=0 --name=a --rw=write --bs=64k --name=b --rw=read --bs=16k --stonewall"
log $fio group "fio --size=4M --filename=f --ioengine=psync --numjobs=2 --group_reporting --name=g --rw=randwrite --fsync=64"
log $fio group-json "fio --size=4M --filename=f --ioengine=psync --numjobs=2 --name=g --rw=randwrite --fsync=64 --output-format=json"

cat >client.txt <<'TXT'
TXT
loads=/usr/share/dbench/client.txt
dbench=dbench-4.0
log $dbench dbench "dbench -t 2 -c $loads -D . 2"
log $dbench tbench 'tbench_srv & sleep 1; tbench -t 2 2 127.0.0.1; kill $!'

log time-forms gnu '/usr/bin/time sh -c "exit 0"; /usr/bin/time -p true; /usr/bin/time -v true; /usr/bin/time false'
log time-forms bash 'bash -c "time true; time -p true; TIMEFORMAT=\"%R %U %S\"; time true"'

serve() {
    "$@" >/dev/null 2>&1 &
    server=$!
    sleep 1
}

i3=iperf3-3.12
serve iperf3 -s -p 5301
log $i3 tcp 'iperf3 -c 127.0.0.1 -p 5301 -t 2'
log $i3 tcp-reverse-parallel 'iperf3 -c 127.0.0.1 -p 5301 -t 2 -P 2 -R'
log $i3 udp 'iperf3 -c 127.0.0.1 -p 5301 -t 2 -u -b 100M'
log $i3 bidir 'iperf3 -c 127.0.0.1 -p 5301 -t 1 --bidir'
log $i3 tcp-json 'iperf3 -c 127.0.0.1 -p 5301 -t 2 -P 2 -J'
log $i3 udp-json 'iperf3 -c 127.0.0.1 -p 5301 -t 1 -u -b 50M -J'
log $i3 units 'iperf3 -c 127.0.0.1 -p 5301 -t 1 -f M; iperf3 -c 127.0.0.1 -p 5301 -t 1 -f K -V'
log $i3 refused 'iperf3 -c 127.0.0.1 -p 5999 -t 1'
log $i3 refused-json 'iperf3 -c 127.0.0.1 -p 5999 -t 1 -J'
kill $server

i2=iperf-2.1
serve iperf -s -p 5302
log $i2 tcp 'iperf -c 127.0.0.1 -p 5302 -t 2 -i 1'
log $i2 parallel 'iperf -c 127.0.0.1 -p 5302 -t 1 -P 2'
log $i2 enhanced 'iperf -c 127.0.0.1 -p 5302 -t 1 -e'
log $i2 csv 'iperf -c 127.0.0.1 -p 5302 -t 2 -i 1 -y C'
kill $server
serve iperf -s -u -p 5303
log $i2 udp 'iperf -c 127.0.0.1 -p 5303 -t 1 -u -b 50M'
kill $server

so=sockperf-3.7
serve sockperf sr -i 127.0.0.1 -p 5304
log $so ping-pong 'sockperf pp -i 127.0.0.1 -p 5304 -t 1'
log $so throughput 'sockperf tp -i 127.0.0.1 -p 5304 -t 1 -m 1000'
log $so under-load 'sockperf ul -i 127.0.0.1 -p 5304 -t 1 --mps 2000'
kill $server

re=redis-7.0
serve redis-server --port 5305 --save ''
log $re text 'redis-benchmark -p 5305 -n 2000 -c 4 -t ping,set,get'
log $re quiet 'redis-benchmark -p 5305 -n 2000 -c 4 -q -t ping,set,get,lrange'
log $re csv 'redis-benchmark -p 5305 -n 2000 -c 4 --csv -t set,get'
kill $server

log $perf stat 'perf stat -- true; perf stat -r 3 -- true; perf stat -a -- sleep 0.1'
log $perf stat-csv 'perf stat -x, -- true; perf stat -x, -r 2 -e task-clock,page-faults -- true'
log $perf stat-json 'perf stat -j -- true'
log $perf stat-interval 'perf stat -I 200 -e task-clock,context-switches -- sleep 0.5; perf stat -x, -I 200 -e task-clock -- sleep 0.5'
log $perf stat-per-core 'perf stat -a -A -e cpu-clock,context-switches -- sleep 0.2; perf stat --metric-no-group -e context-switches,cycles -- true'

ss=sysstat-12.6
log $ss mpstat 'LC_ALL=C mpstat -P ALL 1 2'
log $ss mpstat-json 'mpstat -P ALL -o JSON 1 1'
log $ss mpstat-12-hour 'LC_ALL=en_US.UTF-8 S_TIME_FORMAT= mpstat 1 2'
# Killed before the averages, and without the line of the machine: a clock in every line.
killed='timeout -s KILL 3.5 mpstat'
log $ss mpstat-killed "LC_ALL=C S_TIME_FORMAT= $killed 1 | tail -n +3"
log $ss mpstat-killed-12-hour "LC_ALL=en_US.UTF-8 S_TIME_FORMAT= $killed -P ALL 1 | tail -n +3"
log $ss mpstat-killed-iso "LC_ALL=en_US.UTF-8 S_TIME_FORMAT=ISO $killed 1 | tail -n +3"
pc=procps-4.0
log $pc vmstat 'vmstat 1 3'
log $pc vmstat-wide 'vmstat -w -t 1 2; vmstat -a 1 2'
log linux-6 interrupts 'cat /proc/interrupts'

hf=hyperfine-1.15
log $hf text "hyperfine -N -r 3 true 'sleep 0.01'"
log $hf json "hyperfine -N -r 3 --export-json /dev/stderr --style none true 'sleep 0.01' 2>&1 >/dev/null"
