"""The process that joins the rendezvous and runs this node's workers.

shell.py is the main loop. wire.py and connection.py are its connection to a store, which dial.py finds; workers.py
starts, watches and stops the workers, and node_agent.py is torch's elastic agent underneath. core/agent/ decides what
they do: agent.py there about the node, dialling.py, silence.py and core/quorum/lease.py about the connection.
"""
