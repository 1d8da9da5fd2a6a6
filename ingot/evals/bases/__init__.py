"""The bases of suites: what a suite derives from, by what it has and what it asks."""
