"""The process that joins the rendezvous and runs this node's workers.

shell.py is the main loop. wire.py and connection.py are its connection to a store, which dial.py finds; workers.py
starts, watches and stops the workers, and node_agent.py is torch's elastic agent underneath. warm_workers.py keeps
interpreters that have imported ahead, which run warm_start.py and get their cycle over the sockets of control.py.
core/agent/ decides what they do: agent.py there about the node, warm_plan.py about warm workers, dialling.py,
silence.py and core/quorum/lease.py about the connection.
"""
