"""Trained models that ship with the package; see README.md in this folder for the commands that made them."""
