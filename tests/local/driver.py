"""`ft-supervisor local` with a stand-in for the daemon: argv is the number of nodes."""

import os
import sys
from pathlib import Path

from ft_supervisor import config
from ft_supervisor.local import shell

settings = config.load(Path("job.yaml"), environ=os.environ)
daemon = [sys.executable, str(Path(__file__).with_name("fake_daemon.py"))]
sys.exit(shell.run(daemon, settings, int(sys.argv[1]), False, os.environ))
