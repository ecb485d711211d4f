"""Ceph's S3 gateway on loopback, from Debian's packages: one monitor, one in-memory OSD, one radosgw.

It is a real S3 server (multipart, If-Match and If-None-Match, signatures, TLS) that needs no disk, no root
and no network. Costs: 3 s to start and 120 MB of memory besides what is stored, which is lost at the end.
The manager daemon is left out: without it `ceph -s` complains, S3 works.

Everything runs in the foreground and asks the kernel to be killed with its parent, so that no daemon outlives
the tests, however they end.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from contextlib import closing
from pathlib import Path

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "ceph", "ceph-authtool", "monmaptool", "radosgw-admin")
PACKAGES = "radosgw ceph-mon ceph-osd ceph-common"
ACCESS_KEY, SECRET_KEY = "yanmo-tests", "not-a-secret-of-anyone"
_CAPACITY_BYTES = 4 << 30
"""What the store claims to hold. Below 4 GiB the monitor calls the OSD full too soon; memory is used only for
what is stored (tests keep that below 1 GB)."""
_START_SECONDS, _COMMAND_SECONDS = 90.0, 60.0
_PR_SET_PDEATHSIG = 1

_CONF = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon_v2},v1:127.0.0.1:{mon_v1}]
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind ipv6 = false
ms bind port min = {osd_low}
ms bind port max = {osd_high}
# radosgw hangs for ever without cephx, even where auth is switched off
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 1
mon data avail warn = 2
osd objectstore = memstore
memstore device bytes = {capacity}
# each of radosgw's ten pools waits for the monitor's next proposal, once a second by default
paxos propose interval = 0.02
paxos min wait = 0.01
osd heartbeat grace = 120
# one core is enough for tests, and threads cost memory
osd op num shards = 1
osd op num threads per shard = 2
osd memory target = 939524096
ms async op threads = 1
run dir = {folder}/run
log file = {folder}/$name.log
admin socket = {folder}/run/$name.asok
pid file = {folder}/run/$name.pid
keyring = {folder}/keyring
mon data = {folder}/mon
osd data = {folder}/osd
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{http} {tls} tcp_nodelay=1
rgw data = {folder}/rgw
rgw dns name = localhost
rgw enable usage log = false
# what is deleted shall leave the memory now, not in two hours
rgw gc obj min wait = 1
rgw gc processor period = 5
rgw gc processor max time = 5
rgw thread pool size = 32
"""


def absent() -> str:
    """Why no server can be started here, in words; empty where it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{missing[0]} is not installed: apt-get install {PACKAGES}" if missing else ""


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """TCP ports of loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def make_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate authority of our own and a server certificate for 127.0.0.1 and localhost.

    Returns:
        Paths of the authority's certificate, the server's certificate and its private key (PEM).
    """
    ca, ca_key, cert, key = (folder / n for n in ("ca.pem", "ca.key", "server.pem", "server.key"))
    request, extensions = folder / "server.csr", folder / "server.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:*.localhost\n", encoding="ascii")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    _openssl("req", "-x509", *new, "-subj", "/CN=Yanmo tests", "-days", "30", "-keyout", ca_key, "-out", ca)
    _openssl("req", *new, "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    signed_by = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", extensions)
    _openssl("x509", "-req", "-in", request, *signed_by, "-days", "30", "-out", cert)
    return ca, cert, key


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


def make_user(folder: Path, name: str) -> tuple[str, str]:
    """A user of the server in `folder`, made when absent; its access key and its secret key."""
    keys = f"{ACCESS_KEY}-{name}", f"{SECRET_KEY}-{name}"
    words = (f"--uid={name}", f"--display-name={name}", f"--access-key={keys[0]}", f"--secret-key={keys[1]}")
    done = subprocess.run(
        ["radosgw-admin", "user", "create", *words],
        env=environment(folder), cwd=folder, capture_output=True, timeout=_COMMAND_SECONDS,
    )  # fmt: skip
    if done.returncode and b"exists" not in done.stderr:
        raise RuntimeError(f"radosgw-admin user create: {done.stderr.decode(errors='replace')}")
    return keys


def environment(folder: Path) -> dict[str, str]:
    """For Ceph's programs."""
    # PYTHONPATH would reach `ceph`, a script of the system's own Python.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CEPH", "AWS"))}
    return {**kept, "CEPH_CONF": str(folder / "ceph.conf"), "PATH": os.defpath + ":/usr/sbin"}


class Ceph:
    """The three daemons, from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: theirs alone, made when absent; at most 60 characters, as Unix sockets lie in it.
        """
        self.folder = folder
        self.endpoint = self.tls_endpoint = ""
        self.ca_path = folder / "ca.pem"
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start and wait until S3 answers.

        Raises:
            RuntimeError: it did not come up; holds the last lines of the logs.
        """
        for name in ("run", "mon", "osd", "rgw"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._write_configuration()
        try:
            self._start_monitor()
            self._start_osd()
            self._daemons.append(self._daemon("radosgw", "-n", "client.rgw"))
            self._wait_for_s3()
            user = ("--uid=tests", "--display-name=tests")
            keys = (f"--access-key={ACCESS_KEY}", f"--secret-key={SECRET_KEY}")
            self._run("radosgw-admin", "user", "create", *user, *keys, "--max-buckets=10000")
        except (OSError, subprocess.SubprocessError, TimeoutError) as error:
            result = self._last_words()
            self.stop()
            raise RuntimeError(f"Ceph did not start: {error}\n{result}") from error

    def stop(self) -> None:
        """End the daemons at once: there is nothing to save."""
        for daemon in self._daemons:
            daemon.kill()
        for daemon in self._daemons:
            daemon.wait()
        self._daemons.clear()

    @property
    def pids(self) -> list[int]:
        """Process ids of the daemons."""
        return [daemon.pid for daemon in self._daemons]

    def _write_configuration(self) -> None:
        _, cert, key = make_certificates(self.folder)
        mon_v2, mon_v1, http, https, low = free_ports(5)
        self.endpoint, self.tls_endpoint = f"http://127.0.0.1:{http}", f"https://127.0.0.1:{https}"
        low = min(low, 64_000)
        text = _CONF.format(
            folder=self.folder, fsid=uuid.uuid4(), capacity=_CAPACITY_BYTES, http=http,
            mon_v2=mon_v2, mon_v1=mon_v1, osd_low=low, osd_high=low + 500,
            tls=f"ssl_endpoint=127.0.0.1:{https} ssl_certificate={cert} ssl_private_key={key}",
        )  # fmt: skip
        self._fsid = text.split()[3]
        self._monitors = f"[v2:127.0.0.1:{mon_v2},v1:127.0.0.1:{mon_v1}]"
        (self.folder / "ceph.conf").write_text(text, encoding="utf-8")

    def _start_monitor(self) -> None:
        keyring, monmap = str(self.folder / "keyring"), str(self.folder / "monmap")
        everything = ("--cap", "mon", "allow *", "--cap", "osd", "allow *")
        self._run("ceph-authtool", "-C", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self._run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", *everything)
        rgw = ("--cap", "mon", "allow rwx", "--cap", "osd", "allow rwx")
        self._run("ceph-authtool", keyring, "--gen-key", "-n", "client.rgw", *rgw)
        osd = ("--cap", "mon", "allow profile osd", "--cap", "osd", "allow *")
        self._run("ceph-authtool", keyring, "--gen-key", "-n", "osd.0", *osd)
        self._run("monmaptool", "--create", "--addv", "a", self._monitors, "--fsid", self._fsid, monmap)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self._daemons.append(self._daemon("ceph-mon", "-i", "a"))

    def _start_osd(self) -> None:
        ident = str(uuid.uuid4())
        self._run("ceph", "osd", "new", ident)  # waits for the monitor
        self._run("ceph", "auth", "import", "-i", str(self.folder / "keyring"))
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", ident, "--osd-objectstore", "memstore")
        self._daemons.append(self._daemon("ceph-osd", "-i", "0"))

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command,
            env=environment(self.folder),
            cwd=self.folder,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
        )
        if done.returncode:
            raise subprocess.SubprocessError(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")

    def _daemon(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{command[0]}.out").open("ab") as output:
            return subprocess.Popen(
                [*command, "-f"], env=environment(self.folder), cwd=self.folder, preexec_fn=die_with_parent,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def _wait_for_s3(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            for daemon in self._daemons:
                if daemon.poll() is not None:
                    raise OSError(f"{daemon.args!r} ended with {daemon.returncode}")
            try:
                with closing(urllib.request.urlopen(self.endpoint, timeout=5)):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        raise TimeoutError(f"no answer from {self.endpoint} in {_START_SECONDS:.0f} s")

    def _last_words(self) -> str:
        logs = sorted(self.folder.glob("*.out"))
        return "\n".join(f"{p.name}: {p.read_text(errors='replace')[-2000:]}" for p in logs)
