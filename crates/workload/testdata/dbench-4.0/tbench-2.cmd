tbench --loadfile=/usr/share/dbench/client.txt --timelimit=2 2 127.0.0.1
