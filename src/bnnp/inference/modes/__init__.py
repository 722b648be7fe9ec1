"""Methods that start from modes."""
