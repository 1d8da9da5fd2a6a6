"""An engine over several devices by tensor parallelism."""
