fio --output-format=json --name=vmlab --directory=/no/such --rw=read --size=1m
