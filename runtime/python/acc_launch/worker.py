"""What a worker tells its agent: acc_heartbeat, with types. That module is imported at the first call: it opens the rank's own page,
which a process that imports modules for all ranks (--preload) has none of."""
from __future__ import annotations

from typing import ContextManager, Optional


def heartbeat(step: int) -> None:
    """This process is alive, at this step. Once a step."""
    import acc_heartbeat

    acc_heartbeat.heartbeat(step)


def checkpoint(step: int) -> None:
    """A complete checkpoint of this step was written: restarts count as progress from here."""
    import acc_heartbeat

    acc_heartbeat.checkpoint(step)


def section(name: str, timeout: Optional[float] = None) -> ContextManager[None]:
    """A part that may take longer than a step; with a timeout in seconds, no longer than that."""
    import acc_heartbeat

    section: ContextManager[None] = acc_heartbeat.section(name, timeout)
    return section
