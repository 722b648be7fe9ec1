"""Independent pieces of work in parallel threads, so that all cores are busy.

By itself, torch splits every operation over all cores. On arrays as small as ours, that loses most of the second core;
large pieces of work side by side do not. Results do not depend on the number of threads.

Torch keeps one number of threads for each Python thread, and one for Python threads that are yet to start. Each of our
threads gets its share of torch's threads when it starts and keeps it. The number for threads yet to start is restored
at once. So no other thread's number ever changes, even if the work fails.

A process that is forked from one in which torch has used several threads waits for ever for threads that it does not
have, with or without this library. Such a process gets one thread.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`[work(item) for item in items]`, in parallel as far as torch's number of threads allows.

    Threads work in the caller's context: with its variables, its inference mode, and gradients if they are enabled.

    Args:
        work: What to do with an item.
        items: The items.

    Returns:
        The results, in the order of the items.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(items))
    return _mapped(work, items, workers, threads // max(1, workers))


def one_thread_each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`in_parallel`, with a single thread of torch for each item.

    Where torch splits a product over threads, its last bits depend on their number; here they depend on neither the
    number of threads nor that of the items.

    Args:
        work: As for `in_parallel`.
        items: As for `in_parallel`.

    Returns:
        The results, in the order of the items.
    """
    return _mapped(work, items, torch.get_num_threads(), 1)


def _mapped(work: Callable[[Item], Result], items: Sequence[Item], workers: int, share: int) -> list[Result]:
    """The results of items in a pool of threads, with `share` threads of torch each."""
    if workers <= 1 or getattr(_thread, "is_ours", False):
        return [work(item) for item in items]
    differentiable, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def in_thread(item: Item) -> Result:
        with torch.inference_mode(inference), torch.set_grad_enabled(differentiable):
            return work(item)

    contexts = [copy_context() for _ in items]  # one per item: only one thread at a time can enter a context
    pool = _pool(workers, share)
    return list(pool.map(lambda context, item: context.run(in_thread, item), contexts, items))


def _pool(workers: int, share: int) -> ThreadPoolExecutor:
    """The pool of `workers` threads with `share` threads of torch each. It is made once and then reused."""
    with _lock:
        if (workers, share) not in _pools:
            _pools[workers, share] = _started(workers, share)
        return _pools[workers, share]


def _started(workers: int, share: int) -> ThreadPoolExecutor:
    all_are_there = threading.Barrier(workers)

    def begin() -> None:
        _thread.is_ours = True  # nested work would wait for the threads that it occupies
        torch.get_num_threads()  # the first call in a thread takes the default, which must happen before ours is set
        torch.set_num_threads(share)

    pool = ThreadPoolExecutor(workers, thread_name_prefix="bnnp", initializer=begin)
    number = torch.get_num_threads()
    try:
        list(pool.map(lambda _: all_are_there.wait(), range(workers)))  # all threads start here, none later
    finally:
        torch.set_num_threads(number)  # the default for threads yet to start
    return pool


def _without_threads() -> None:
    """In a process that was forked, no other thread lives: neither ours, nor torch's, which it would wait for."""
    global _pools, _lock
    _pools, _lock = {}, threading.Lock()
    torch.set_num_threads(1)


_thread = threading.local()
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # where processes can be forked at all
    os.register_at_fork(after_in_child=_without_threads)
