"""What `status` shows of a job: judged from its files and from Slurm.
Changes nothing of the job."""
