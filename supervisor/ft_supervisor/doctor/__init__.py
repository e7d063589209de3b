"""What is wrong here, before or while a job runs: on a login node, in an allocation, in a step, on any machine.

Each check is a function that returns findings; what they judge is pure, in functions of its own. Nothing is left
behind, nothing needs root, every wait has a bound. No torch but in a process of its own.
"""
