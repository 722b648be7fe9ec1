"""`python -m bnnp` is the command `bnnp`."""

from bnnp.cli import main

main()
