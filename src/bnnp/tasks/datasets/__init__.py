"""The real data of the paper, one family per file."""
