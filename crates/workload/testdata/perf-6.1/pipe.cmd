perf bench sched pipe -l 2000
