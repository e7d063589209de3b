"""`ft-supervisor local` with a stand-in for the daemon: argv is the number of nodes.

$FAKE_MARGIN: seconds that daemons get to end.
"""

import os
import sys
from pathlib import Path

from ft_supervisor import config
from ft_supervisor.local import shell

settings = config.load(Path("job.yaml"), environ=os.environ)
if "FAKE_MARGIN" in os.environ:
    shell._Local._bound = lambda _self, _grace: float(os.environ["FAKE_MARGIN"])  # type: ignore[method-assign,assignment]
daemon = [sys.executable, str(Path(__file__).with_name("fake_daemon.py"))]
sys.exit(shell.run(daemon, settings, int(sys.argv[1]), False, os.environ))
