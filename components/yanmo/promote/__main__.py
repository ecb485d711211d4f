import sys

from yanmo.promote.command import main

if __name__ == "__main__":
    sys.exit(main())
