"""`ft-supervisor stacks`: what the workers of a running job do just now, without harm to them.

shell       asks all nodes, and prints the clusters of ranks and the stacks
executor    the process on each node that looks at the node's workers
messages    between the two
render      the output for people, and as JSON; pure
"""
