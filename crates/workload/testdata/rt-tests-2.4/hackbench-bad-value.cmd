hackbench -g 2 -s 0
