"""`yanmo store ...`: what an operator does with a store. One module per subcommand."""

import sys

from yanmo.store.command import main

if __name__ == "__main__":
    sys.exit(main())
