ab -q -n 20 -c 2 http://127.0.0.1:80/no-such
