"""The variables that Slurm sets in a batch script and in a step, as the tests of the checks need them."""

BATCH = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[0-3]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_SUBMIT_DIR": "/submit",
    "SLURMD_NODENAME": "n0",
}
STEP = {**BATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[0-3]", "SLURM_NODEID": "1", "SLURMD_NODENAME": "n1"}
