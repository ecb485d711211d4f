"""`python3 install`, which `make` calls. Says whether this Python can, so any Python must read this file."""

import sys

if __name__ == "__main__":
    version = ".".join(str(number) for number in sys.version_info[:2])
    if version not in ("3.11", "3.12", "3.13"):
        sys.stderr.write(
            "Yanmo needs Python 3.11, 3.12 or 3.13; " + sys.executable + " is " + version
            + ". Name another: make PYTHON=python3.12\n"
        )  # fmt: skip
        sys.exit(78)
    import installer

    sys.exit(installer.main())
