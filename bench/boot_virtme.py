"""Boots one guest with virtme-ng and prints the seconds from its start until a
command in the guest has printed READY. Prints why not and ends with 1 if none
does.

Usage: boot_virtme.py FOLDER   (with venv/ and root/, as bench/boot.sh makes it)
"""

import glob
import os
import pty
import select
import signal
import sys
import time

LIMIT_S = 120


def main(folder: str) -> None:
    kernel = glob.glob(f"{folder}/root/boot/vmlinuz-*")[0]
    arguments = [
        f"{folder}/venv/bin/vng", "-r", kernel, "--root", f"{folder}/root", "--user", "root",
        "--disable-kvm", "--disable-monitor", "--force-9p", "-m", "512M", "--cpus", "1",
        # In two parts, so that the command line itself does not say it.
        "--", "echo REA''DY",
    ]
    os.environ["PATH"] = f"{folder}/venv/bin:{os.environ['PATH']}"
    started = time.monotonic()
    # Without a terminal virtme-ng does not hand on what the command prints.
    child, terminal = pty.fork()
    if child == 0:
        os.execv(arguments[0], arguments)
    seconds = None
    output = b""
    while seconds is None and time.monotonic() - started < LIMIT_S:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            output += os.read(terminal, 4096)
        except OSError:
            break
        if b"READY" in output:
            seconds = time.monotonic() - started
    # The child leads a session of its own, QEMU is in its process group.
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(child, 0)
    os.close(terminal)
    if seconds is None:
        sys.exit(output[-2000:].decode(errors="replace") + "\nvirtme-ng started no guest")
    print(f"{seconds:.3f}")


main(sys.argv[1])
