"""SQL and invariants: one module per verb, no Django, no clock, no chance.

Every function takes a connection (anything with Django's `cursor()`) and the time from above and
does one whole thing. Which connection, when, and in which transaction is the manager's business.
"""
