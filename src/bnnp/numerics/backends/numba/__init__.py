"""Compiled loops: vectors (`simd`), blocks of matrices (`tiles`), loops over all (`batched`), calls (`binding`)."""
