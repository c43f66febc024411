hackbench -g 1 -f 5 -l 2000 -s 64 -p -T
