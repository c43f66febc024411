hackbench 1 process 200
