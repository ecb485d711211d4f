"""A command that sees the null GPU.

    PYTHONPATH=tests python -m chaos.null_gpu [--arithmetic] [--gibibytes N] [--capability 7.5] -- COMMAND ...

As root it also sees the device file /dev/nvidia0, by which `yanmo train` looks for a GPU: in a mount
namespace of its own.
"""

from __future__ import annotations

import argparse
import os
import sys

from chaos.null_gpu import absent, environment, has_device_file

_DEVICES = """
set -e
new=$(mktemp -d)
mount -t tmpfs none "$new"
for name in null zero full random urandom tty ptmx; do
    [ -e /dev/$name ] && mknod -m 666 "$new/$name" c $(stat -c '%Hr %Lr' /dev/$name)
done
mkdir "$new/shm" "$new/pts"
mount --bind /dev/shm "$new/shm"
ln -s /proc/self/fd "$new/fd"
ln -s fd/0 "$new/stdin"; ln -s fd/1 "$new/stdout"; ln -s fd/2 "$new/stderr"
touch "$new/nvidia0"
mount --rbind "$new" /dev
exec "$@"
"""


def main() -> None:
    """Become the command."""
    parser = argparse.ArgumentParser(prog="null_gpu", description=__doc__)
    parser.add_argument("--arithmetic", action="store_true", help="compute, on the CPU")
    parser.add_argument("--gibibytes", type=float, default=0, help="of the card's memory (default: 79.6)")
    parser.add_argument("--capability", type=float, default=9.0, help="the card's compute capability")
    parser.add_argument("--microseconds", type=int, default=0, help="that a kernel takes on the card")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    reason = absent()
    if reason:
        sys.exit(f"no null GPU here: {reason}")
    given = {name: value for name, value in vars(asked).items() if name != "command"}
    sees = environment(**given)
    command = asked.command
    if has_device_file():
        command = ["unshare", "--mount", "bash", "-c", _DEVICES, "null_gpu", *command]
    os.execvpe(command[0], command, sees)


if __name__ == "__main__":
    main()
