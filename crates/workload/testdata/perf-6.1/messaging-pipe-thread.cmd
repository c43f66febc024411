perf bench sched messaging -g 2 -l 500 -p -t
