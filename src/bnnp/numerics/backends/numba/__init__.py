"""Compiled loops over many small matrices, for the CPU.

simd            vectors of numbers
moves           matrices into blocks and back
tiles, inverse  products and inverses of blocks
batched         the loops: `function_space`, `weight_space`, and its `gradients`
compiled        how they become machine code, and where that is kept
binding         the back end: calls of the loops with tensors
"""
