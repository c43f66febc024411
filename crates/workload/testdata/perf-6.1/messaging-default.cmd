perf bench sched messaging -g 2 -l 200
