"""Chooses the nodes that train: pools, vacancies, growth, and the choice among them.

It depends on the nodes and their roster, and not on processes, terms or messages.
"""
