"""Records which connections the cluster's pods make, for tests/manifests/connections.json.

    python tests/cluster/connections.py --seconds 600 --out tests/manifests/connections.json  # as root

Needs conntrack (Debian's package of that name), KUBECONFIG, and to run on the only node of the cluster. Start
it, then run the pipeline and the Jobs of manifests/. Each connection that is new to the kernel is taken to
the pod that has its source address then, and to the Service whose endpoint its destination is. Written are
the distinct ones: labels that policies look at, namespace, Service or name, port, protocol, and how often
each was seen.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

_NEW = re.compile(r"\[(\d+)\.\d+\]\s+\[NEW\] (tcp|udp) .*?src=(\S+) dst=(\S+) sport=\d+ dport=(\d+)")
_LABELS = (
    "app.kubernetes.io/",
    "yanmo.dev/",
    "pipelines.kubeflow.org/",
    "batch.kubernetes.io/controller-uid",
    "k8s-app",
)


def kubectl_json(*words: str) -> Any:
    """What kubectl prints; {} where the server does not answer now."""
    done = subprocess.run(["kubectl", *words, "-o=json"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}


class Pods:
    """Which pod had an address when."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, dict[str, Any]]] = {}

    def look(self) -> None:
        for pod in kubectl_json("get", "pods", "--all-namespaces").get("items", []):
            address = pod["status"].get("podIP")
            if address and not pod["spec"].get("hostNetwork"):
                self._of.setdefault(address, {})[pod["metadata"]["uid"]] = pod

    def at(self, address: str, when: float) -> dict[str, Any] | None:
        """The pod that had the address: the last one that was started before."""
        found = [
            (started, pod)
            for pod in self._of.get(address, {}).values()
            if (started := _started(pod)) <= when + 2
        ]
        return max(found, key=lambda each: each[0])[1] if found else None


def _started(pod: dict[str, Any]) -> float:
    text = pod["status"].get("startTime") or pod["metadata"]["creationTimestamp"]
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone


def labels_of(pod: dict[str, Any]) -> dict[str, str]:
    """Those that policies look at; a Job's uid is only said to be there."""
    found = {k: v for k, v in pod["metadata"].get("labels", {}).items() if k.startswith(_LABELS)}
    found |= {k: "any" for k in found if k.endswith("controller-uid")}
    return dict(sorted(found.items()))


def services() -> dict[tuple[str, int], str]:
    """Address and port -> `namespace/service:port of the service`."""
    found = {}
    for each in kubectl_json("get", "services", "--all-namespaces").get("items", []):
        name = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for port in each["spec"]["ports"]:
            found[each["spec"].get("clusterIP", ""), port["port"]] = f"{name}:{port['port']}"
    for each in kubectl_json("get", "endpointslices", "--all-namespaces").get("items", []):
        name = f"{each['metadata']['namespace']}/{each['metadata']['labels']['kubernetes.io/service-name']}"
        for port in each.get("ports") or []:
            for endpoint in each.get("endpoints") or []:
                for address in endpoint["addresses"]:
                    found.setdefault((address, port["port"]), f"{name}:{port['port']}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dns", default="", help="address of the cluster's DNS where no Service says it")
    given = parser.parse_args()
    pods, lines = Pods(), list[str]()
    tracker = subprocess.Popen(
        ["conntrack", "-E", "-e", "NEW", "-o", "timestamp"], stdout=subprocess.PIPE, text=True
    )
    assert tracker.stdout
    reader = threading.Thread(target=lambda: lines.extend(tracker.stdout or ()), daemon=True)
    reader.start()
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        pods.look()
        time.sleep(2)
    tracker.terminate()
    reader.join()
    known = services()
    seen: Counter[str] = Counter()
    for line in lines:
        if not (found := _NEW.search(line)):
            continue
        when, protocol, source, target, port = float(found[1]), found[2], found[3], found[4], int(found[5])
        pod, peer = pods.at(source, when), pods.at(target, when)
        if pod is None and peer is None:
            continue  # of the node's own programs
        to: dict[str, Any] = (
            {"labels": labels_of(peer), "namespace": peer["metadata"]["namespace"]} if peer else {}
        )
        if not peer:
            name = (
                "kube-system/kube-dns:53"
                if given.dns == target and port == 53
                else known.get((target, port), "")
            )
            to = {"service": name} if name else {"address": target}
        made_by = (
            {"labels": labels_of(pod), "namespace": pod["metadata"]["namespace"]} if pod else {"node": True}
        )
        seen[json.dumps({"from": made_by, "to": to, "port": port, "protocol": protocol.upper()})] += 1
    document = [{**json.loads(each), "seen": count} for each, count in sorted(seen.items())]
    given.out.write_text("[\n" + ",\n".join(map(json.dumps, document)) + "\n]\n", encoding="utf-8")
    print(f"{len(lines)} connections, {sum(seen.values())} of pods, {len(document)} distinct: {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
