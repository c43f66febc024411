perf bench mem memcpy --function=default --size=4MB --nr_loops=2
