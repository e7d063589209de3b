"""`python -m ft_supervisor.coordinator`: started by a daemon, with a link."""

from ft_supervisor.coordinator.shell import main

if __name__ == "__main__":
    main()
