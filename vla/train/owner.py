"""Who is doing a run: enough to tell, later and from another process, whether they still live."""

from __future__ import annotations

import functools
import os
import socket
import uuid
from pathlib import Path


def new_owner() -> str:
    """``machine|pid|start|random``: one name for one sweep in one process."""
    pid = os.getpid()
    return f"{machine()}|{pid}|{_started(pid)}|{uuid.uuid4().hex[:12]}"


def is_gone(owner: str) -> bool:
    """Whether the owner is known to have ended: its process was here, and isn't any more.

    ``False`` for an owner on another machine: only its heartbeat tells.
    """
    where, pid, started, _ = owner.split("|")
    return where == machine() and _started(int(pid)) != started


@functools.cache
def machine() -> str:
    """Host, boot and process namespace: a pid means the same process only within one of these."""
    return f"{socket.gethostname()}/{_boot()}/{_namespace()}".replace("|", "")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When the process began, in clock ticks since boot; ``""`` if there is no such process.

    A pid can be given out again; pid and start together can't. A zombie has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self").exists() else _started_elsewhere(pid)
    return "" if fields[0] in "ZX" else fields[19]


def _started_elsewhere(pid: int) -> str:
    """Without ``/proc`` (macOS): whether the pid is in use is all that can be known."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
