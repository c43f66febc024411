dbench --loadfile=/usr/share/dbench/client.txt --timelimit=2 --directory /scratch 2
