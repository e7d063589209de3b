"""The process that hosts the job's store and makes the job's decisions."""
