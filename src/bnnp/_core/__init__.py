"""What every part of the library uses: randomness, shapes, threads, progress bars, files."""
