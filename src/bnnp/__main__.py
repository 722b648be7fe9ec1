"""`python -m bnnp` is the command `bnnp`."""

from bnnp.cli.verbs import main

main()
