"""``python -m restless_bandits`` is the command ``restless``."""

from restless_bandits.cli import main

if __name__ == "__main__":
    main()
