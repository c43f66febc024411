timeout -s INT 0.3 hackbench -g 2 -f 20 -l 20000 -P
