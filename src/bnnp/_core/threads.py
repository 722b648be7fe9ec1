"""Both cores busy: independent pieces of work in threads, each with its share of the threads that torch has.

Torch's own way, every operation split over all cores, loses most of the second core on arrays as small as ours. Large
pieces side by side do not. Results do not depend on how many threads there are.

Torch has a number of threads for each thread, and one for threads to come. Ours get their share when they are started
and keep it, and the number for threads to come is put back at once. So nobody else's number ever changes, whatever
happens in the work.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`[work(item) for item in items]`, side by side as far as torch's number of threads allows.

    Threads work in the caller's context: with its variables, its inference mode, and derivatives where it has them.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(items))
    if workers <= 1 or getattr(_thread, "is_ours", False):
        return [work(item) for item in items]
    differentiable, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def in_thread(item: Item) -> Result:
        with torch.inference_mode(inference), torch.set_grad_enabled(differentiable):
            return work(item)

    contexts = [copy_context() for _ in items]  # one each: a context is entered by one thread at a time
    pool = _pool(workers, threads // workers)
    return list(pool.map(lambda context, item: context.run(in_thread, item), contexts, items))


def _pool(workers: int, share: int) -> ThreadPoolExecutor:
    """Threads that have so many threads of torch each; the same ones whenever they are asked for."""
    with _lock:
        if (workers, share) not in _pools:
            _pools[workers, share] = _started(workers, share)
        return _pools[workers, share]


def _started(workers: int, share: int) -> ThreadPoolExecutor:
    all_are_there = threading.Barrier(workers)

    def begin() -> None:
        _thread.is_ours = True  # work within work would wait for the threads that it keeps busy
        torch.get_num_threads()  # a thread's first question gives it the number for threads to come; now it is asked
        torch.set_num_threads(share)

    pool = ThreadPoolExecutor(workers, thread_name_prefix="bnnp", initializer=begin)
    number = torch.get_num_threads()
    try:
        list(pool.map(lambda _: all_are_there.wait(), range(workers)))  # all of them start here, and none later
    finally:
        torch.set_num_threads(number)  # for threads to come
    return pool


_thread = threading.local()
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_lock = threading.Lock()
