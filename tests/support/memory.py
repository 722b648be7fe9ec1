"""Shared by tests: helpers of test_chunked."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

# --- memory ----------------------------------------------------------------------------------------------------------


def peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes of tensors that some work holds at once."""
    record: Any
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the profiler does not see other threads
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            work()
    finally:
        torch.set_num_threads(before)
    changes = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes.sort(key=lambda event: event.start_ns())
    return int(np.cumsum([change.nbytes() for change in changes]).max())


SHORT: dict[str, Any] = {"steps": 5, "record_every": 3, "evaluate_every": 2, "checkpoint_every": 1}
