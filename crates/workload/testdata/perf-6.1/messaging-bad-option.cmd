perf bench sched messaging --nonsense
