"""`ft-supervisor launch` with a shorter patience for srun: argv is that patience in seconds."""

import os
import sys
from pathlib import Path

from ft_slurm import allocation
from ft_supervisor import config
from ft_supervisor.launch.shell import Launch

nodes = allocation.read(os.environ)
settings = config.load(Path("job.yaml"), environ=os.environ, allocation_nodes=nodes.node_count)
sys.exit(Launch(["daemon", "--config", "job.yaml"], settings, nodes, os.environ, float(sys.argv[1])).run())
