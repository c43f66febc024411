vmlab-probe wakeup --pause-us 50 --seconds 0.2 --repeat 2
