"""`ft-supervisor launch` with a shorter patience for srun: argv is that patience in seconds.

With $FAKE_NOHUP it ignores SIGHUP from the beginning, as under nohup.
"""

import os
import signal
import sys
from pathlib import Path

from ft_slurm import allocation
from ft_supervisor import config
from ft_supervisor.launch.shell import Launch

if "FAKE_NOHUP" in os.environ:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
nodes = allocation.read(os.environ)
settings = config.load(Path("job.yaml"), environ=os.environ, allocation_nodes=nodes.node_count)
sys.exit(Launch(["daemon", "--config", "job.yaml"], settings, nodes, os.environ, float(sys.argv[1])).run())
