"""The process that hosts the job's store, and decides."""
