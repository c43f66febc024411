# In namespaces of its own: a switch whose two ports are taps, one of them in another
# network, and bytes over TCP from one network to the other. $1 is vmlab, $2 a folder.
set -eu
cd "$2"
ip link set lo up
"$1" switch --control control --port tap:t0,bridge=nope 2>bridge && exit 1
"$1" switch --control control --port tap:t0,bridge=lo 2>>bridge && exit 1
if ip link show t0 >/dev/null 2>&1; then echo "t0 is left" >&2; exit 1; fi
"$1" switch --quiet --control control --port tap:t0 --port tap:t1,rate=4gbit \
	--mirror frames.pcapng,ports=t0,snap=128 --metrics 127.0.0.1:9464 2>switch.err &
switch=$!
unshare --net sh -c 'echo >ready; exec tail -f /dev/null' &
other=$!
trap 'kill $other $switch 2>/dev/null || true' EXIT
until "$1" switch ctl --control control status >status 2>/dev/null; do
	kill -0 $switch || { cat switch.err >&2; exit 1; }
	sleep 0.1
done
until [ -e ready ]; do sleep 0.1; done
there() { nsenter --target "$other" --net -- "$@"; }
ip link set t1 netns "$other"
ip addr add 10.9.9.1/24 dev t0
there ip addr add 10.9.9.2/24 dev t1
there ip link set t1 up
there python3 -c '
import hashlib, socket
listener = socket.create_server(("10.9.9.2", 5001))
end, _ = listener.accept()
digest, part = hashlib.sha256(), True
while part:
    part = end.recv(1 << 16)
    digest.update(part)
print(digest.hexdigest())' >received &
receiver=$!
python3 -c '
import hashlib, os, socket, time
while True:
    try:
        end = socket.create_connection(("10.9.9.2", 5001), 5)
        break
    except OSError:
        time.sleep(0.1)
digest = hashlib.sha256()
for _ in range(64):
    part = os.urandom(1 << 20)
    digest.update(part)
    end.sendall(part)
print(digest.hexdigest())' >sent
wait $receiver
cmp sent received
python3 -c '
import socket
end = socket.create_connection(("127.0.0.1", 9464), 5)
end.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
text = b""
while part := end.recv(1 << 16):
    text += part
print(text.decode())' >metrics
"$1" switch ctl --control control status --json
"$1" switch ctl --control control add tap:t2 2>later && exit 1
kill -INT $switch
wait $switch
if ip link show t0 >/dev/null 2>&1; then echo "t0 is left" >&2; exit 1; fi
