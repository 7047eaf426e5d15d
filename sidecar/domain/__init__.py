"""What a rate limit is: requests, routes, identifiers, rules, algorithms, decisions.

Standard library only, synchronous, without I/O, clock or logging; the edge feeds it.
"""
