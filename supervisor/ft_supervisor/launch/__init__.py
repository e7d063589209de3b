"""`ft-supervisor launch`: the process in the batch script that starts srun and exits with the job's verdict.

It carries out what core.launch decides, on the batch host and outside any container. No torch.
"""
