"""Runs untrusted programs: in their own process, within limits, as isolated as this machine allows."""
