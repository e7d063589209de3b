"""Which nodes train: pools, vacancies, growth, and the choice among them.
Knows the nodes and their roster; knows nothing of processes, terms or messages."""
