"""Renders a job's report as text, HTML and JSON, and the table of a user's jobs.

The input is the history of the runs, and Slurm's records. Decides nothing."""
