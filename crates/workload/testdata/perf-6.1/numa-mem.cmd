perf bench numa mem --nr_proc=1 --nr_threads=2 --mb_proc=32 --nr_secs=1
