perf bench syscall basic --loop 100000
