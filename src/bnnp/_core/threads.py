"""Both cores busy: independent pieces of work in threads, each with its share of the threads that torch has.

Torch's own way, every operation split over all cores, loses most of the second core on arrays as small as ours. Large
pieces side by side do not. Results do not depend on how many threads there are.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`[work(item) for item in items]`, side by side as far as torch's number of threads allows."""
    threads = torch.get_num_threads()
    workers = min(threads, len(items))
    if workers <= 1 or getattr(_thread, "is_ours", False):
        return [work(item) for item in items]
    share = threads // workers
    differentiable, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def in_thread(item: Item) -> Result:
        _thread.is_ours = True  # work within work would wait for the threads that it keeps busy
        torch.set_num_threads(share)
        with torch.inference_mode(inference), torch.set_grad_enabled(differentiable):
            return work(item)

    torch.set_num_threads(share)  # of the matrix library too, which has one number for all threads
    try:
        return list(_pool(workers).map(in_thread, items))
    finally:
        torch.set_num_threads(threads)


_thread = threading.local()


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="bnnp")
