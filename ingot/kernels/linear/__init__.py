"""Linear attention: recurrences with decays and the delta rule, in chunks and token by token."""
