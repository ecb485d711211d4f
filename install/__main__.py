"""`python3 install`, which `make` calls. Says whether this Python can, so any Python must read this file."""

import os
import subprocess
import sys

FITTING = ("3.11", "3.12", "3.13")


def fitting_names():
    """Commands on the PATH that start a Python that can."""
    names = []
    for version in reversed(FITTING):
        try:
            with open(os.devnull, "w") as nowhere:
                if subprocess.call(["python" + version, "-c", ""], stdout=nowhere, stderr=nowhere) == 0:
                    names.append("python" + version)
        except OSError:
            pass
    return names


def main():
    """The installer's exit code."""
    version = ".".join(str(number) for number in sys.version_info[:2])
    if version not in FITTING:
        others = fitting_names()
        advice = (
            "make PYTHON=" + others[0]
            if others
            else "install one and name it: make PYTHON=/path/to/python3.12"
        )
        sys.stderr.write(
            "Yanmo needs Python " + ", ".join(FITTING[:-1]) + " or " + FITTING[-1] + "; " + sys.executable
            + " is " + version + ". " + advice + "\n"
        )  # fmt: skip
        return 78
    import installer

    return installer.main()


if __name__ == "__main__":
    sys.exit(main())
