"""`python -m ft_supervisor.agent`, started by the daemon with one end of a socket pair."""

from __future__ import annotations

from typing import NoReturn

from ft_supervisor.process.child import enter_child


def main() -> NoReturn:
    """Run the agent. Never returns: it leaves by os._exit, even while threads hang in a store's call."""
    link = enter_child()
    # Only now, as it takes seconds: from here on signals are ignored, and this process dies with the daemon.
    import ft_supervisor.store.tcp  # noqa: F401 - before any other import of torch, which reads the environment then
    from ft_supervisor.agent.shell import run

    run(link)


if __name__ == "__main__":
    main()
