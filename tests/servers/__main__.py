"""`PYTHONPATH=tests python -m servers`: an S3 server to try things on, until Ctrl-C.

With a fault proxy in front of it: `--fault-rate 0.1 --seed 7`.
"""

from __future__ import annotations

import argparse
import signal
import sys

from servers import s3
from servers.fault_proxy import FaultProxy, Faults


def main() -> int:
    """Start the server, say where it is, wait; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m servers", description=__doc__)
    parser.add_argument(
        "--fault-rate", type=float, default=0.0, help="share of requests that meet a fault (0 to 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults")
    given = parser.parse_args()
    reason = s3.absent()
    if reason:
        print(reason, file=sys.stderr)
        return 78
    server = s3.borrow("by-hand")
    bucket = server.new_bucket()
    with FaultProxy(server.endpoint, Faults.evenly(given.fault_rate), given.seed) as proxy:
        where = proxy.endpoint if given.fault_rate else server.endpoint
        for name, value in server.environment(where).items():
            print(f"export {name}={value}")
        print(
            f"# --store s3://{bucket}/store   TLS: {server.tls_endpoint} with AWS_CA_BUNDLE={server.ca_path}"
        )
        print("# Ctrl-C ends it", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
        print(proxy.report(), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
