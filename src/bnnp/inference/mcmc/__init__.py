"""Methods that run Markov chains."""
