"""A run over several hosts: each starts `hetopt run --elastic --host NAME`.

One of them leads (`election`): it plans, and has the others start ranks. A host whose
connection ends, or that is silent, is gone with its GPUs; one that connects is there,
whole. Where the leader is gone, the next one goes on from the latest states.
"""

import hashlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from ..errors import HetoptError, InstanceError, RunFailed, Unsupported
from ..plans import TrainingPlan
from ..schema import Instance
from . import notice
from .agent import Agent, Ending
from .elastic import Elastic, all_gpus
from .election import Election, Leader
from .jobs import Job, Settings, job
from .links import Link
from .processes import Hear, Line, Tell, silence
from .supervisor import Ran, check, run

#: Seconds that the first leader waits for all hosts, and a later one for any more.
_FIRST_S, _LATER_S = 30.0, 3.0
#: Seconds that a leader may be out of reach, before another is elected.
_AWAY_S = 5.0
_LOOK_S, _BEAT_S, _END_S = 0.2, 1.0, 10.0
#: Seconds until a GPU is tried again whose rank was lost on a host that is there; each
#: further loss doubles them, until the host connects anew.
BACK_S = 60.0


class _Deposed(HetoptError):
    """Another host leads now: this one was out of reach."""


class Far:
    """A rank's process on another host, as the leader knows it."""

    def __init__(self, link: Link, key: int, hear: Hear) -> None:
        self._link, self._key, self._hear = link, key, hear
        self._code: int | None = None
        self._ended = threading.Event()
        self.ending = "is gone with its host"

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._code

    def say(self, word: str) -> None:
        """Write a word to its standard input."""
        self._link.send({"rank": self._key, "word": word})

    def kill(self) -> None:
        """End it at once."""
        if self._code is None:
            self._link.send({"rank": self._key, "kill": True})

    def wait(self) -> None:
        """Return once it has ended; a host that does not end it is given up."""
        if not self._ended.wait(_END_S):
            self._link.close()
            self._ended.wait()

    def hear(self, line: Line) -> None:
        """Take in a line of it, or how it ended."""
        if "line" in line:
            self._hear(line["line"])
        else:
            self.end(line["code"], line["ending"])

    def end(self, code: int, ending: str) -> None:
        """Note that it has ended."""
        if not self._ended.is_set():
            self._code, self.ending = code, ending
            self._ended.set()
            self._hear(None)


class _Member:
    """A host that is there."""

    def __init__(self, link: Link) -> None:
        self.link, self.heard, self.leaves = link, time.monotonic(), False
        self.ranks: dict[int, Far] = {}


class Hosts:
    """The hosts that the leader can use, and their GPUs, as `Elastic` asks for them.

    A GPU whose rank is gone counts as lost for a while (`BACK_S`), or until its host
    connects again.
    """

    def __init__(
        self, known: Sequence[str], run: str, silent_s: float, leader: Leader
    ) -> None:
        self._known, self._run, self._silent_s = known, run, silent_s
        self.leader = leader
        self._members: dict[str, _Member] = {}
        self._lost: dict[str, tuple[int, float]] = {}  # times, and when it is back
        self._last: set[str] | None = None
        self._lock, self._keys = threading.RLock(), count()
        self.ask: Callable[[], None] = lambda: None

    @property
    def own(self) -> str:
        """The host that leads: this machine."""
        return self.leader.host

    # --- what Elastic asks ---------------------------------------------------------

    def changed(self) -> tuple[set[str], list[str]] | None:
        """Return the GPUs that are there; None where nothing changed.

        Raises what `ask` raises, where this host is to lead no more.
        """
        self.ask()
        with self._lock:
            hosts = {name for name, one in self._members.items() if not one.leaves}
            now = time.monotonic()
            away = {gpu for gpu, (_, back) in self._lost.items() if now < back}
            there = {g for g in self._known if _host(g) in hosts} - away
        if there == self._last:
            return None
        self._last = there
        return there, []

    def lose(self, gpus: Iterable[str]) -> None:
        """Note GPUs whose ranks are gone."""
        with self._lock:
            for gpu in gpus:
                if _host(gpu) in self._members:
                    times, _ = self._lost.get(gpu, (0, 0.0))
                    back = time.monotonic() + BACK_S * 2**times
                    self._lost[gpu] = times + 1, back

    def starter(self, names: Sequence[str]) -> "_Away":
        """Return what starts ranks on the GPUs of these names."""
        return _Away(self, names)

    # --- members -------------------------------------------------------------------

    def gather(self) -> None:
        """Wait for hosts: the first leader for all, a later one while some come."""
        hosts = {_host(gpu) for gpu in self._known}
        patience = _FIRST_S if self.leader.term == 1 else _LATER_S
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and hosts != set(self._members):
            time.sleep(_LOOK_S)

    def serve(self, listener: socket.socket) -> None:
        """Let hosts connect until the listener closes."""
        threading.Thread(target=self._beat, args=(listener,), daemon=True).start()
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                words = (Link(connection),)
                threading.Thread(target=self._hear, args=words, daemon=True).start()

    def _beat(self, listener: socket.socket) -> None:
        """Say that the leader lives, and drop who does not."""
        while listener.fileno() >= 0:
            now = time.monotonic()
            for member in list(self._members.values()):
                member.link.send({"alive": True})
                if now - member.heard > self._silent_s:
                    member.link.close()
            time.sleep(_BEAT_S)

    def _hear(self, link: Link) -> None:
        lines = link.lines()
        hello = next(lines, {})
        host = str(hello.get("host"))
        if reason := self._refusal(host, hello.get("run")):
            link.send({"refused": reason})
            link.close()
            return
        member = _Member(link)
        with self._lock:
            before = self._members.get(host)
            self._members[host] = member
            for gpu in [gpu for gpu in self._lost if _host(gpu) == host]:
                del self._lost[gpu]
        if before is not None:
            words = f"--host {host}: another process of this host took its place"
            before.link.send({"refused": words})
            self._drop(before)
        for line in lines:
            member.heard = time.monotonic()
            if line.get("leaves"):
                member.leaves = True
            elif (rank := member.ranks.get(line.get("rank", -1))) is not None:
                rank.hear(line)
        with self._lock:
            if self._members.get(host) is member:
                del self._members[host]
        self._drop(member)

    def _refusal(self, host: str, run: str | None) -> str | None:
        nodes = list(dict.fromkeys(map(_host, self._known)))
        if host not in nodes:
            return f"--host: found {host!r}, expected a node of the plan's instance"
        if run != self._run:
            return (
                f"--host {host}: its plan or options are others than those of "
                f"{self.leader.host}, which leads the run; start all hosts alike"
            )
        return None

    def _drop(self, member: _Member) -> None:
        member.link.close()
        with self._lock:
            ranks = list(member.ranks.values())
        for rank in ranks:
            rank.end(-signal.SIGKILL, "is gone with its host")

    def start(self, name: str, order: Line, hear: Hear) -> Far:
        """Have the host of a GPU start a rank on it."""
        host, _, slot = name.rpartition(":")
        key = next(self._keys)
        with self._lock:
            member = self._members.get(host)
            rank = Far(member.link if member else _nowhere(), key, hear)
            if member is not None:
                member.ranks[key] = rank
        if member is None:
            rank.end(-signal.SIGKILL, "is gone with its host")
        else:
            member.link.send({"start": key, "slot": int(slot), **order})
        return rank

    def end(self, line: Line) -> None:
        """Send all a last line, and wait until they have read it."""
        for member in list(self._members.values()):
            member.link.send(line)
        deadline = time.monotonic() + _END_S
        while self._members and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """End the connections to all hosts, which end their ranks."""
        for member in list(self._members.values()):
            member.link.close()


class _Away:
    """Starts the ranks of one job on their hosts; they meet at a store of torch's."""

    def __init__(self, hosts: Hosts, names: Sequence[str]) -> None:
        self._hosts, self._names = hosts, names
        store: Any = import_module("torch.distributed").TCPStore
        address = hosts.leader.address
        self._store = store(address, 0, is_master=True, wait_for_workers=False)
        self._meeting = f"tcp://{address}:{self._store.port}"

    def start(self, job: Job, folder: Path, number: int, hear: Hear) -> Far:
        """Start a rank."""
        order = {
            "job": job.model_dump_json(),
            "number": number,
            "meeting": self._meeting,
        }
        return self._hosts.start(self._names[number], order, hear)


def _host(gpu: str) -> str:
    return gpu.rpartition(":")[0]


def _nowhere() -> Link:
    link = Link(socket.socket())
    link.close()
    return link


# --- a host's whole part -----------------------------------------------------------


class Host:
    """This machine's part in a run: it leads, or follows the host that does."""

    def __init__(
        self,
        data: Instance,
        plan: TrainingPlan,
        settings: Settings,
        host: str,
        address: str | None = None,
        model: Path | None = None,
        tell: Tell = lambda row: None,
    ) -> None:
        self._posed = data, plan, settings, model
        self._host, self._address, self._tell = host, address or host, tell
        if settings.checkpoint is None:
            raise Unsupported(
                "--host: hosts go on from saved states: give --checkpoint with it"
            )
        counts = {node.name: node.count for node in data.planned_cluster.nodes}
        if host not in counts:
            raise InstanceError(
                f"--host: found {host!r}, expected a node of the plan's instance: "
                f"{', '.join(counts)}"
            )
        self._job = job(data, plan, settings, model)
        self._state = check(self._job, range(counts[host]))
        self._silent_s = silence(self._job)
        self._run = hashlib.sha256(self._job.model_dump_json().encode()).hexdigest()
        self._election = Election(settings.checkpoint)

    def ran(self) -> Ran:
        """Take part until the run is over, or this host leaves it."""
        since, gone = time.monotonic(), None
        while True:
            leader = self._election.leader()
            connection = None if leader == gone else _connect(leader)
            if connection is not None and leader is not None:
                ending = self._followed(connection, leader)
                if ending is not Ending.LEADERLESS:
                    return self._empty(interrupted=ending is Ending.LEFT)
                gone = leader
            elif leader == gone or time.monotonic() - since > _AWAY_S:
                if (ran := self._led(leader.term + 1 if leader else 1)) is not None:
                    return ran
                since = time.monotonic()
            else:
                time.sleep(_LOOK_S)

    def _empty(self, *, interrupted: bool) -> Ran:
        """The document of a host that followed: the leader tells of the steps."""
        after = self._state.step if self._state else None
        ranks, predicted = len(self._job.gpus), self._job.predicted_s
        return Ran([], after, interrupted, ranks, predicted, 0, [])

    def _followed(self, connection: socket.socket, leader: Leader) -> Ending:
        self._tell({"joined": leader.host})
        agent = Agent(self._host, self._run, self._silent_s)
        with notice.notices(self._posed[2]) as leaves:
            return agent.follow(connection, leaves.is_set)

    def _led(self, term: int) -> Ran | None:
        """Lead the run; None where another host does."""
        with _listening(self._address) as listener:
            port = listener.getsockname()[1]
            leader = Leader(
                term=term, host=self._host, address=self._address, port=port
            )
            if not self._election.claim(leader):
                return None
            self._tell({"leads": self._host, "term": term})
            hosts = Hosts(all_gpus(self._posed[0]), self._run, self._silent_s, leader)
            serve = threading.Thread(target=hosts.serve, args=(listener,), daemon=True)
            serve.start()
            own = threading.Thread(target=self._own, args=(leader,), daemon=True)
            own.start()
            try:
                return self._lead(hosts)
            except _Deposed:
                return None
            finally:
                hosts.close()
                own.join()

    def _own(self, leader: Leader) -> None:
        """Be the leader's first host, too."""
        if (connection := _connect(leader)) is not None:
            with suppress(RunFailed, Unsupported):  # the leader raises them itself
                Agent(self._host, self._run, self._silent_s).follow(connection)

    def _lead(self, hosts: Hosts) -> Ran:
        data, plan, settings, model = self._posed

        def still() -> None:
            if not self._election.is_led_by(hosts.leader):
                raise _Deposed

        hosts.ask = still
        hosts.gather()
        try:
            site = Elastic(data, plan, settings, model, self._tell, hosts)
            ran = run(site.job, self._tell, site)
        except (RunFailed, Unsupported, InstanceError) as error:
            hosts.end({"failed": str(error)})
            self._election.close()
            raise
        if ran.steps and ran.steps[-1]["step"] == settings.steps:
            hosts.end({"over": True})
            self._election.close()
        return ran


@contextmanager
def _listening(address: str) -> Iterator[socket.socket]:
    try:
        listener = socket.create_server((address, 0))
    except OSError as error:
        raise Unsupported(
            f"--address: found {address!r}, which this machine does not have "
            f"({error.strerror or error}), expected one under which the other hosts "
            "reach it"
        ) from None
    with listener:
        yield listener
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _connect(leader: Leader | None) -> socket.socket | None:
    """Return a connection to the leader; None where nobody listens there."""
    if leader is None:
        return None
    with suppress(OSError):
        return socket.create_connection((leader.address, leader.port), _AWAY_S)
    return None
