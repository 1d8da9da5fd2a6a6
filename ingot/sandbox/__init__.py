"""Run a program that nobody trusts: in its own process, within limits, as isolated as this machine allows."""
