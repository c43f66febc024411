hackbench -g 2 -f 20 -l 200 -s 100 -P
