"""Where learning a prior begins."""
