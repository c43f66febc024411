perf bench -f simple sched messaging -g 2 -l 200
