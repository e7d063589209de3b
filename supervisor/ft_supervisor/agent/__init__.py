"""The process that joins the rendezvous and runs this node's workers.

shell.py is the main loop, wire.py the connections to the store, workers.py starts, watches and stops the workers,
node_agent.py is torch's elastic agent underneath. What to do is decided by core.agent.
"""
