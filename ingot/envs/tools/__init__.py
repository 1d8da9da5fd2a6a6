"""Tools that a model may call while it talks: functions of a user's file, and Python code. Each runs in a process of its own."""
