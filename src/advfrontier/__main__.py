"""`python -m advfrontier` is the command line."""

from advfrontier.cli import main

if __name__ == "__main__":
    main()
