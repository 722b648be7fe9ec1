"""The conjugate Gaussian update, from the equation to the machine. `README.md` walks through one update."""
