ab -q -n 200 -c 10 http://127.0.0.1:80/index.html
