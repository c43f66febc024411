hackbench -g 1 -f 1 -l 1 -s 1 -T
