"""Game days: parts of a running job of one's own are killed, frozen or cut off, to see it survive.

shell       what a person's `ft-supervisor fault` does: look, aim, wait, send a hand, tell what it did
plan        pure: whom a fault hits, and what a seed draws
reach       how a hand gets to the node: right here, or by srun
errand      one hand that was sent out
hand        the process on the node that does it, and undoes it when its time is over, whatever becomes of the shell
find        on the node: which processes are the job's
grip, cut   on the node: signals that can hit nobody else; packets dropped
record      what was done, in the run's folder
"""
