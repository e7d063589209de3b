"""A run's report as text, HTML and JSON, and the table of a user's jobs.
Renders what history and Slurm say; decides nothing."""
