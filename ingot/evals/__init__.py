"""Measures checkpoints and says how sure the measures are: suites, statistics, stages eval and verdict, the table."""
