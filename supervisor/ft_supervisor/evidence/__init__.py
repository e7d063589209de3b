"""What a node's workers do, as it can be seen from outside: their stacks, and the collectives that they have entered.

gather      all of a node's workers at the same time, in a bound
server      torch's worker server in a worker, on a unix socket: answers even while the GIL is held
recorder    torch's flight recorder: its record, by the server or from a file
py_spy      stacks by py-spy
printed     stacks that a worker prints at a signal (faulthandler), where it catches that
kernel      what proc(5) tells of a process's threads
stack       a stack's hash, and the line of it that people know; pure
footprint   what a look itself makes a worker write
digest      a worker's digest, cut to its bound; pure

Nothing here stops a worker or changes it: a signal is sent only to a process that catches it.
"""
