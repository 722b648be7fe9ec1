"""Compiled loops: vectors (`simd`), blocks of matrices (`tiles`), loops over all blocks (`batched`), calls (`binding`)."""
