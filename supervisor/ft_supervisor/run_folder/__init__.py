"""Files that a run leaves for people and for other processes, and where they lie.
Reads and writes them; decides nothing about the job."""
