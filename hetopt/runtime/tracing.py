"""A trace shows what a rank does when, for `chrome://tracing` and Perfetto."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..text.writing import write_json
from .pytorch import Device, torch


class Trace:
    """The spans of one rank; without a folder nothing is timed.

    GPUs are waited for at both ends of a span, which makes a traced run slower.
    """

    def __init__(self, folder: str | None, rank: int, gpu: str, device: Device) -> None:
        self._folder, self._rank, self._gpu, self._device = folder, rank, gpu, device
        self._events: list[dict[str, object]] = []
        self.count = 0  # of spans that began or ended

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Something that begins and ends."""
        self.count += 1
        if self._folder is None:
            yield
            self.count += 1
            return
        start = self._now_us()
        yield
        self.count += 1
        self._events.append(
            {
                "name": name,
                "ph": "X",
                "ts": start,
                "dur": self._now_us() - start,
                "pid": self._gpu.rpartition(":")[0],
                "tid": self._rank,
            }
        )

    def write(self) -> None:
        """Write `rank-N.json` into the folder."""
        if self._folder is None:
            return
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        place = Path(self._folder, f"rank-{self._rank}.json")
        whole = {
            "traceEvents": self._events,
            "displayTimeUnit": "ms",
            "otherData": {"gpu": self._gpu, "rank": self._rank},
        }
        write_json(place, whole)

    def _now_us(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return time.time_ns() / 1000
