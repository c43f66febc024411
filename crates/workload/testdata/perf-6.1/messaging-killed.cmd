timeout -s KILL 0.3 perf bench sched messaging -g 2 -l 20000
