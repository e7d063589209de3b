"""`python -m ft_supervisor.agent`, started by the daemon with one end of a socket pair."""

from __future__ import annotations

from typing import NoReturn

from ft_supervisor.process.child import enter_child


def main() -> NoReturn:
    """Never returns: the agent leaves by os._exit, threads that hang in a store's call behind it."""
    link = enter_child()
    # Only now, as it takes seconds: from here on signals are ignored, and the daemon's death is ours.
    import ft_supervisor.store.tcp  # noqa: F401 - before whatever else imports torch, which reads the environment then
    from ft_supervisor.agent.shell import run

    run(link)


if __name__ == "__main__":
    main()
